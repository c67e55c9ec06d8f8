#include "judge/waits.h"

#include <fmt/format.h>

#include <algorithm>

namespace accel {
namespace {

const CommunicatorEvidence* communicator_in(const ProcessEvidence& process, std::uint16_t slot) {
  for (const CommunicatorEvidence& communicator : process.communicators) {
    if (communicator.slot == slot) return &communicator;
  }
  return nullptr;
}

}  // namespace

Waits::Waits(const Evidence& evidence, const std::map<std::uint64_t, Members>& communicators)
    : evidence_(evidence), communicators_(communicators) {
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
    for (const BlockedCall& call : evidence.processes[i].blocked) waits_.push_back(describe(i, call));
  }
  for (const auto& [key, members] : communicators) {
    if (!members.on_stream || members.aborted || members.opaque || members.twice) continue;
    add_stream_waits(members);
    add_pair_waits(members);
    add_standing_streams(members);
  }
}

/// NCCL calls return at once, so no thread is inside; but one that a member has not made cannot be complete
/// on those that need it.
void Waits::add_stream_waits(const Members& members) {
  std::uint64_t least = UINT64_MAX;
  for (const Member& member : members.seen) least = std::min(least, member.communicator.record.sequence);
  for (const Member& member : members.seen) {
    const ProcessEvidence& process = evidence_.processes[member.process];
    if (member.communicator.record.sequence <= least || !process.alive || process.has_left()) continue;
    const auto record = process.history->call(member.communicator.slot, least + 1);
    if (!record || !traits(record->function).on_stream || record->returned == 0) continue;
    Wait wait = describe(member.process, {0, *record, process.history->started_ns(*record)});
    wait.on_stream = true;
    if (!wait.needs.empty()) waits_.push_back(std::move(wait));
  }
}

/// All members have made the call, and the GPU is known not to have completed it: nobody's mistake that we
/// can see.
void Waits::add_standing_streams(const Members& members) {
  std::uint64_t least = UINT64_MAX;
  for (const Member& member : members.seen) least = std::min(least, member.communicator.record.sequence);
  if (!members.complete() || least == 0) return;
  for (const Member& member : members.seen) {
    const ProcessEvidence& process = evidence_.processes[member.process];
    if (!process.alive || process.has_left()) continue;
    for (std::size_t number = 0; number < process.streams.size(); ++number) {
      const StreamEvidence& stream = process.streams[number];
      constexpr std::int64_t kWorthALook = 100'000'000;
      const bool stands = stream.record.tracked != 0 && stream.record.completed < stream.record.launched &&
                          evidence_.now_ns - stream.since_ns >= kWorthALook;
      if (!stands) continue;
      // The first on the stream that is not complete.
      const auto record = process.history->call(member.communicator.slot, least);
      if (!record || !traits(record->function).on_stream || record->tag != number || record->returned == 0)
        continue;
      if (record->launch != static_cast<std::uint16_t>(stream.record.completed + 1)) continue;
      Wait wait;
      wait.process = member.process;
      wait.call = {0, *record, std::max(stream.since_ns, process.history->started_ns(*record))};
      wait.members = &members;
      wait.on_stream = true;
      wait.all_called = true;
      waits_.push_back(std::move(wait));
    }
  }
}

/// A receive needs its send. A send may be complete without its receive, if it is small.
void Waits::add_pair_waits(const Members& members) {
  constexpr std::uint32_t kReceives = 1;
  for (const Member& member : members.seen) {
    const ProcessEvidence& process = evidence_.processes[member.process];
    if (!process.alive || process.has_left()) continue;
    for (const PairRecord& pair : process.pairs) {
      if (pair.communicator != members.key) continue;
      const auto peer = std::find_if(members.seen.begin(), members.seen.end(), [&](const Member& one) {
        return one.communicator.record.rank == pair.peer;
      });
      if (peer == members.seen.end() || peer->process == member.process) continue;
      std::uint64_t there = 0;
      for (const PairRecord& other : evidence_.processes[peer->process].pairs) {
        const bool opposite = other.communicator == members.key && other.direction != pair.direction &&
                              other.peer == member.communicator.record.rank;
        if (opposite) there = other.count;
      }
      if (there >= pair.count) continue;
      const bool receives = pair.direction == kReceives;
      const auto record = process.history->pair_call(receives ? Function::NcclRecv : Function::NcclSend,
                                                     member.communicator.slot, pair.peer, there + 1);
      if (!record || record->returned == 0) continue;
      Wait wait;
      wait.process = member.process;
      wait.call = {0, *record, process.history->started_ns(*record)};
      wait.members = &members;
      wait.needs.push_back(peer->process);
      wait.missing.push_back(peer->process);
      wait.certain_only_when_gone_for_long = !receives;
      wait.on_stream = true;
      waits_.push_back(std::move(wait));
    }
  }
}

/// A communicator that is being made needs processes that do not know it yet: those of the job, if it takes
/// them all.
void Waits::add_absentees(Wait& wait) const {
  const ProcessEvidence& own = evidence_.processes[wait.process];
  if (wait.members->size != own.world_size) return;
  for (std::size_t i = 0; i < evidence_.processes.size(); ++i) {
    const ProcessEvidence& other = evidence_.processes[i];
    if (other.world_key != own.world_key || other.world_rank < 0 || member_of(*wait.members, i) != nullptr)
      continue;
    wait.missing.push_back(i);
    wait.needs.push_back(i);
  }
}

/// Will never make the call that the wait is for.
bool Waits::gone(const Wait& wait, std::size_t process) const {
  if (evidence_.processes[process].has_left()) return true;
  const Member* member = wait.members != nullptr ? member_of(*wait.members, process) : nullptr;
  return member != nullptr && has_destroyed(*member);
}

std::optional<CallRecord> Waits::waits_in(std::size_t process) const {
  std::optional<CallRecord> on_stream;
  for (const Wait& wait : waits_) {
    if (wait.process != process) continue;
    if (!wait.on_stream) return wait.call.record;
    if (!on_stream || wait.call.record.started < on_stream->started) on_stream = wait.call.record;
  }
  return on_stream;
}

/// Whether the call cannot return on `rank` before `peer` has made it too. Only what no implementation can
/// avoid: data that must come from the peer, or a synchronisation that the standard demands.
bool Waits::needs_peer(const Wait& wait, const CallRecord& record, std::int32_t rank,
                       std::int32_t peer) const {
  const FunctionTraits& what = traits(record.function);
  if (what.vector) {
    const auto vectors = evidence_.processes[wait.process].history->vectors(record);
    if (!vectors) return false;
    const auto& expects = vectors->expects;
    if (record.function == Function::Reduce_scatter) {
      return static_cast<std::size_t>(rank) < expects.size() &&
             expects[static_cast<std::size_t>(rank)].count > 0;
    }
    return static_cast<std::size_t>(peer) < expects.size() &&
           expects[static_cast<std::size_t>(peer)].count > 0;
  }
  if (what.data && record.count <= 0) return false;  // an implementation may return at once
  switch (what.flow) {
    case Flow::Everyone:
      return true;
    case Flow::FromRoot:
      return rank != record.root && peer == record.root;
    case Flow::ToRoot:
      return rank == record.root;
    case Flow::Prefix:
      return peer < rank;
    default:
      return false;
  }
}

Waits::Wait Waits::describe(std::size_t process, const BlockedCall& call) const {
  Wait wait;
  wait.process = process;
  wait.call = call;
  const CallRecord& record = call.record;
  const CommunicatorEvidence* mine = communicator_in(evidence_.processes[process], record.communicator);
  if (record.function == Function::None || mine == nullptr) return wait;
  const auto found = communicators_.find(mine->record.key);
  if (found == communicators_.end() || found->second.aborted) return wait;
  wait.members = &found->second;
  const FunctionTraits& what = traits(record.function);
  wait.certain_only_when_gone_for_long = !what.numbered || record.function == Function::Finalize;
  if (wait.members->inter) return wait;
  for (const Member& member : wait.members->seen) {
    if (member.process == process) continue;
    const std::int32_t peer = member.communicator.record.rank;
    if (!what.numbered) {
      if (peer == record.root) wait.needs.push_back(member.process);
      continue;
    }
    if (member.communicator.record.sequence >= record.sequence) continue;
    wait.missing.push_back(member.process);
    if (needs_peer(wait, record, mine->record.rank, peer)) wait.needs.push_back(member.process);
  }
  if (record.function == Function::NcclCommInitRank) add_absentees(wait);
  return wait;
}

Verdict Waits::verdict_for(VerdictKind kind, const Wait& wait) const {
  Verdict verdict;
  verdict.kind = kind;
  verdict.function = wait.call.record.function;
  verdict.sequence = wait.call.record.sequence;
  if (wait.members != nullptr) {
    verdict.communicator = wait.members->key;
    verdict.size = wait.members->size;
  }
  verdict.parties.push_back(make_party(evidence_, wait.process, wait.call.record));
  verdict.parties.back().inside = true;
  return verdict;
}

/// Whether `missing`, which has not made the call that `wait` is in, has left and so never will, and the wait
/// is for it.
bool Waits::departed_in_vain(const Wait& wait, std::size_t missing, const JudgePolicy& policy) const {
  const ProcessEvidence& gone = evidence_.processes[missing];
  if (!this->gone(wait, missing) || gone.terminated) return false;
  // It lives, and has destroyed the communicator: the wait is in vain whatever else it does.
  if (!gone.has_left()) return true;
  // Killed together, from outside: nobody waited for anybody any more.
  const ProcessEvidence& waiting = evidence_.processes[wait.process];
  const bool together = !waiting.alive && !waiting.terminated && waiting.gone_since_ns <= gone.gone_since_ns;
  if (!gone.alive && together) return false;
  const std::int64_t waited = evidence_.now_ns - std::max(wait.call.since_ns, policy.not_before_ns);
  if (wait.certain_only_when_gone_for_long) {
    const bool long_gone = !gone.alive && gone.gone_since_ns != 0 &&
                           std::min(waited, evidence_.now_ns - gone.gone_since_ns) >= policy.gone_settle_ns;
    const bool both_finalized =
        wait.call.record.function == Function::Finalize && gone.phase == Phase::Finalized;
    return long_gone && !both_finalized;
  }
  const bool needed = std::find(wait.needs.begin(), wait.needs.end(), missing) != wait.needs.end();
  return needed ||
         (traits(wait.call.record.function).flow != Flow::NoWait && waited >= policy.missing_settle_ns);
}

std::optional<Verdict> Waits::find_early_exit(const JudgePolicy& policy) const {
  // Of several that are gone, one that was not itself waiting: a launcher kills the waiting ones after it.
  const auto order = [&](std::size_t process) {
    const ProcessEvidence& one = evidence_.processes[process];
    return std::pair(!one.blocked.empty(), one.alive ? 0 : one.gone_since_ns);
  };
  for (const Wait& wait : waits_) {
    std::vector<std::size_t> candidates =
        traits(wait.call.record.function).numbered || wait.on_stream ? wait.missing : wait.needs;
    std::erase_if(candidates, [&](std::size_t missing) { return !departed_in_vain(wait, missing, policy); });
    const auto first = std::min_element(candidates.begin(), candidates.end(),
                                        [&](std::size_t a, std::size_t b) { return order(a) < order(b); });
    if (first != candidates.end()) {
      const std::size_t missing = *first;
      const ProcessEvidence& gone = evidence_.processes[missing];
      Verdict verdict = verdict_for(VerdictKind::EarlyExit, wait);
      Party party = make_party(evidence_, missing, std::nullopt);
      party.blamed = true;
      party.state = gone.has_left() ? describe_departure(gone) : "has called ncclCommDestroy";
      verdict.parties.push_back(std::move(party));
      if (gone.signal_inferred) {
        verdict.details.push_back(
            fmt::format("signal {} is inferred: process {} is gone without exit, MPI_Finalize or "
                        "a signal that can be caught",
                        gone.signal, gone.world_rank));
      }
      return verdict;
    }
  }
  return std::nullopt;
}

std::optional<Verdict> Waits::find_standstill(const JudgePolicy& policy) const {
  std::map<std::uint64_t, std::vector<const Wait*>> worlds;
  for (const Wait& wait : waits_) {
    const ProcessEvidence& process = evidence_.processes[wait.process];
    const std::int64_t waited = evidence_.now_ns - std::max(wait.call.since_ns, policy.not_before_ns);
    const bool still = process.alive && !wait.on_stream && process.no_other_thread &&
                       process.blocked.size() == 1 && !wait.certain_only_when_gone_for_long &&
                       !wait.missing.empty() && waited >= policy.standstill_ns;
    if (still) worlds[process.world_key].push_back(&wait);
  }
  for (const auto& [world, waits] : worlds) {
    const std::int32_t size = evidence_.processes[waits.front()->process].world_size;
    if (static_cast<std::size_t>(size) != waits.size()) continue;
    // Who stood still first waits for the one that went another way.
    const Wait& first = **std::min_element(waits.begin(), waits.end(), [](const Wait* a, const Wait* b) {
      return a->call.since_ns < b->call.since_ns;
    });
    Verdict verdict = verdict_for(VerdictKind::Deadlock, first);
    verdict.waited_ns = evidence_.now_ns - first.call.since_ns;
    verdict.parties.clear();
    for (const Wait* wait : waits) {
      Party party = make_party(evidence_, wait->process, wait->call.record);
      party.blamed =
          std::find(first.missing.begin(), first.missing.end(), wait->process) != first.missing.end();
      verdict.parties.push_back(std::move(party));
    }
    verdict.details.push_back(
        fmt::format("all {} processes have stood still for {} s, each in a collective that "
                    "another one has not called",
                    size, policy.standstill_ns / 1'000'000'000));
    return verdict;
  }
  return std::nullopt;
}

std::optional<Verdict> Waits::find_circle() const {
  // Each process that can do nothing but wait is a node; an edge leads to one it needs.
  std::vector<const Wait*> node(evidence_.processes.size(), nullptr);
  for (const Wait& wait : waits_) {
    const ProcessEvidence& process = evidence_.processes[wait.process];
    const bool stuck =
        process.alive && !wait.on_stream && process.no_other_thread && !wait.certain_only_when_gone_for_long;
    if (stuck && process.blocked.size() == 1) node[wait.process] = &wait;
  }
  enum class Mark { New, Open, Done };
  std::vector<Mark> marks(node.size(), Mark::New);
  std::vector<std::size_t> path;
  std::vector<std::size_t> circle;
  const auto visit = [&](const auto& self, std::size_t process) -> bool {
    marks[process] = Mark::Open;
    path.push_back(process);
    for (const std::size_t next : node[process]->needs) {
      if (node[next] == nullptr || marks[next] == Mark::Done) continue;
      if (marks[next] == Mark::Open) {
        circle.assign(std::find(path.begin(), path.end(), next), path.end());
        return true;
      }
      if (self(self, next)) return true;
    }
    path.pop_back();
    marks[process] = Mark::Done;
    return false;
  };
  for (std::size_t process = 0; process < node.size() && circle.empty(); ++process) {
    if (node[process] != nullptr && marks[process] == Mark::New) visit(visit, process);
  }
  if (circle.empty()) return std::nullopt;

  Verdict verdict = verdict_for(VerdictKind::Deadlock, *node[circle.front()]);
  verdict.parties.clear();
  for (std::size_t i = 0; i < circle.size(); ++i) {
    const Wait& wait = *node[circle[i]];
    Party party = make_party(evidence_, circle[i], wait.call.record);
    party.blamed = true;
    verdict.parties.push_back(std::move(party));
    verdict.details.push_back(
        fmt::format("process {} waits in {} (#{} on communicator {:08x}) for process {}",
                    evidence_.processes[circle[i]].world_rank, traits(wait.call.record.function).name,
                    wait.call.record.sequence, static_cast<std::uint32_t>(wait.members->key >> 32),
                    evidence_.processes[circle[(i + 1) % circle.size()]].world_rank));
  }
  return verdict;
}

std::optional<std::int64_t> Waits::waited_for_since(std::size_t process) const {
  std::optional<std::int64_t> since;
  for (const Wait& wait : waits_) {
    if (std::find(wait.needs.begin(), wait.needs.end(), process) == wait.needs.end()) continue;
    since = std::min(since.value_or(wait.call.since_ns), wait.call.since_ns);
  }
  return since;
}

std::optional<Verdict> Waits::find_late(const JudgePolicy& policy) const {
  const Wait* longest = nullptr;
  std::int64_t longest_ns = 0;
  for (const Wait& wait : waits_) {
    if (!evidence_.processes[wait.process].alive || wait.call.record.function == Function::None) continue;
    const std::int64_t waited = evidence_.now_ns - std::max(wait.call.since_ns, policy.not_before_ns);
    // Waiting for a message, or for the others to finish, may be somebody's business.
    const bool collective = !wait.certain_only_when_gone_for_long;
    if (collective && waited > longest_ns) {
      longest = &wait;
      longest_ns = waited;
    }
  }
  if (longest == nullptr) return std::nullopt;
  const bool timed_out = policy.timeout_ns != 0 && longest_ns >= policy.timeout_ns;
  const bool late = policy.warn_after_ns != 0 && longest_ns >= policy.warn_after_ns;
  if (!timed_out && !late) return std::nullopt;
  Verdict verdict = verdict_for(timed_out ? VerdictKind::TimeOut : VerdictKind::Late, *longest);
  verdict.waited_ns = longest_ns;
  if (longest->members != nullptr && !longest->members->inter && !longest->members->twice)
    verdict.absent = longest->members->absent();
  if (longest->all_called) {
    verdict.details.emplace_back(
        "all ranks have made the call and their arguments agree: not a usage error; the GPU, the network or "
        "work before it "
        "on the stream does not progress");
  }
  for (const std::size_t missing : longest->missing) {
    const ProcessEvidence& process = evidence_.processes[missing];
    std::optional<CallRecord> elsewhere;
    if (const auto waits = waits_in(missing)) elsewhere = waits;
    Party party = make_party(evidence_, missing, elsewhere);
    party.inside = elsewhere.has_value();
    party.blamed = true;
    if (process.has_left()) {
      party.state = describe_departure(process);
    } else if (!elsewhere) {
      party.state = describe_absence(process);
    }
    verdict.parties.push_back(std::move(party));
  }
  return verdict;
}

}  // namespace accel
