#include "judge/judge.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "judge/members.h"
#include "judge/streams.h"
#include "judge/waits.h"

namespace accel {

int exit_status(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::Mismatch:
      return ACCEL_EXIT_MISMATCH;
    case VerdictKind::OutOfMemory:
      return ACCEL_EXIT_OUT_OF_MEMORY;
    case VerdictKind::Crash:
      return ACCEL_EXIT_CRASH;
    case VerdictKind::EarlyExit:
      return ACCEL_EXIT_EARLY_EXIT;
    case VerdictKind::Deadlock:
    case VerdictKind::TimeOut:
      return ACCEL_EXIT_DEADLOCK;
    case VerdictKind::Datatypes:
    case VerdictKind::Late:
      break;
  }
  return 0;
}

const char* title(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::Mismatch:
      return "collective mismatch";
    case VerdictKind::OutOfMemory:
      return "out of memory";
    case VerdictKind::Crash:
      return "crash";
    case VerdictKind::EarlyExit:
      return "early exit";
    case VerdictKind::Deadlock:
      return "deadlock";
    case VerdictKind::TimeOut:
      return "time-out";
    case VerdictKind::Datatypes:
      return "arguments differ";
    case VerdictKind::Late:
      return "late";
  }
  return "?";
}

const char* name_of(Field field) {
  switch (field) {
    case Field::Kind:
      return "kind";
    case Field::Count:
      return "count";
    case Field::Datatype:
      return "datatype";
    case Field::ReduceOp:
      return "op";
    case Field::Root:
      return "root";
    case Field::Peers:
      return "counts per peer";
    case Field::Size:
      return "number of ranks";
    case Field::Rank:
      return "rank";
    case Field::Captured:
      return "capture into a graph";
    case Field::UniqueId:
      return "ncclUniqueId";
    case Field::Configuration:
      return "configuration";
  }
  return "?";
}

std::string describe_departure(const ProcessEvidence& process) {
  if (process.phase == Phase::Aborting) return "has called MPI_Abort";
  if (process.phase == Phase::Finalized) {
    return process.alive ? "has called MPI_Finalize" : "has called MPI_Finalize and exited";
  }
  if (process.signal != 0) {
    const char* abbreviation = sigabbrev_np(process.signal);
    return fmt::format("was killed by signal {} (SIG{})", process.signal, abbreviation ? abbreviation : "?");
  }
  if (process.phase == Phase::Exiting) {
    const bool owes = (process.libraries & kUsesMpi) != 0;
    return fmt::format("has exited with status {}{}", process.exit_status,
                       owes ? " without MPI_Finalize" : "");
  }
  return process.alive ? "is running" : "is gone";
}

std::string describe_absence(const ProcessEvidence& process) {
  if (process.phase == Phase::Initializing && process.libraries == 0) return "is inside MPI_Init";
  if (!process.driver_waits.empty()) {
    switch (process.driver_waits.front()) {
      case DriverWait::Stream:
        return "waits for a CUDA stream";
      case DriverWait::Event:
        return "waits for a CUDA event";
      case DriverWait::Context:
      case DriverWait::None:
        return "waits for the GPU";
    }
  }
  const bool mpi = (process.libraries & kUsesMpi) != 0;
  const bool nccl = (process.libraries & kUsesNccl) != 0;
  const bool cuda_only = process.libraries == kUsesCuda;
  return mpi && nccl ? "is outside MPI and NCCL"
         : nccl      ? "is outside NCCL"
         : cuda_only ? "uses CUDA"
                     : "is outside MPI";
}

std::map<std::uint64_t, Members> members_of(const Evidence& evidence) {
  std::map<std::uint64_t, Members> result;
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
    for (const CommunicatorEvidence& communicator : evidence.processes[i].communicators) {
      const CommunicatorRecord& record = communicator.record;
      Members& members = result[record.key];
      members.key = record.key;
      members.size = record.size;
      members.opaque = members.opaque || (record.flags & kCommunicatorOpaque) != 0;
      members.inter = members.inter || (record.flags & kCommunicatorInter) != 0;
      members.on_stream = members.on_stream || (record.flags & kCommunicatorOnStream) != 0;
      members.reused = members.reused || (record.flags & kCommunicatorReused) != 0;
      members.aborted = members.aborted || (record.flags & kCommunicatorAborted) != 0;
      members.seen.push_back({i, communicator});
    }
  }
  for (auto& [key, members] : result) {
    std::stable_sort(members.seen.begin(), members.seen.end(), [](const Member& a, const Member& b) {
      return a.communicator.record.rank < b.communicator.record.rank;
    });
    // A rank that is there twice makes the communicator unfit for comparison: two NCCL processes claim the
    // same, or bytes are damaged.
    for (std::size_t i = 1; i < members.seen.size() && !members.inter; ++i) {
      if (members.seen[i].communicator.record.rank == members.seen[i - 1].communicator.record.rank) {
        members.twice = true;
      }
    }
  }
  return result;
}

std::vector<std::int32_t> Members::absent() const {
  std::vector<std::int32_t> result;
  for (std::int32_t rank = 0; rank < size && !inter && seen.size() < static_cast<std::size_t>(size); ++rank) {
    const bool there = std::any_of(seen.begin(), seen.end(),
                                   [&](const Member& one) { return one.communicator.record.rank == rank; });
    if (!there) result.push_back(rank);
  }
  return result;
}

const Member* member_of(const Members& members, std::size_t process) {
  for (const Member& member : members.seen) {
    if (member.process == process) return &member;
  }
  return nullptr;
}

bool has_destroyed(const Member& member) {
  const std::uint32_t flags = member.communicator.record.flags;
  return (flags & kCommunicatorOnStream) != 0 && (flags & kCommunicatorFreed) != 0 &&
         (flags & kCommunicatorAborted) == 0;
}

std::vector<std::int64_t> significant_counts(const CallRecord& record, const VectorEvidence& vectors) {
  const Flow flow = traits(record.function).flow;
  const bool has_both = !vectors.sends.empty() && !vectors.expects.empty();
  const auto& blocks =
      vectors.expects.empty() || (flow == Flow::FromRoot && has_both) ? vectors.sends : vectors.expects;
  std::vector<std::int64_t> counts;
  for (std::size_t peer = 0; peer < blocks.size(); ++peer) {
    const bool own_block_only = traits(record.function).rooted && !has_both;
    if (!own_block_only || static_cast<std::int32_t>(peer) == record.root)
      counts.push_back(blocks[peer].count);
  }
  return counts;
}

Party make_party(const Evidence& evidence, std::size_t process, const std::optional<CallRecord>& record) {
  const ProcessEvidence& who = evidence.processes[process];
  Party party;
  party.process = process;
  party.world_rank = who.world_rank;
  party.call = record;
  if (record && who.history) {
    party.datatype = who.history->datatype(record->datatype);
    party.site = who.history->site(*record);
    party.inside = record->returned == 0;
    if (const auto vectors = who.history->vectors(*record))
      party.counts = significant_counts(*record, *vectors);
  }
  return party;
}

namespace {

bool is_crash(int signal) {
  return signal == SIGSEGV || signal == SIGABRT || signal == SIGBUS || signal == SIGFPE || signal == SIGILL;
}

/// The other ranks of a process's world, as they stand.
void add_everybody(const Evidence& evidence, const Waits& waits, std::uint64_t world, Verdict& verdict) {
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
    const ProcessEvidence& process = evidence.processes[i];
    if (process.world_key != world) continue;
    const bool known = std::any_of(verdict.parties.begin(), verdict.parties.end(),
                                   [&](const Party& party) { return party.process == i; });
    if (known) continue;
    const std::optional<CallRecord> inside = waits.waits_in(i);
    Party party = make_party(evidence, i, inside);
    party.inside = inside.has_value();
    if (process.has_left()) {
      party.state = describe_departure(process);
    } else if (!inside) {
      party.state = describe_absence(process);
    }
    verdict.parties.push_back(std::move(party));
  }
  std::stable_sort(verdict.parties.begin(), verdict.parties.end(),
                   [](const Party& a, const Party& b) { return a.world_rank < b.world_rank; });
}

std::optional<Verdict> find_crash(const Evidence& evidence, const Waits& waits) {
  const ProcessEvidence* first = nullptr;
  for (const ProcessEvidence& process : evidence.processes) {
    const bool crashed = process.phase != Phase::Finalized && is_crash(process.signal) &&
                         !process.terminated && process.world_rank >= 0;
    const auto since = [](const ProcessEvidence& p) { return p.alive ? INT64_MAX : p.gone_since_ns; };
    if (crashed && (first == nullptr || since(process) < since(*first))) first = &process;
  }
  if (first == nullptr) return std::nullopt;
  Verdict verdict;
  verdict.kind = VerdictKind::Crash;
  add_everybody(evidence, waits, first->world_key, verdict);
  for (Party& party : verdict.parties) {
    party.blamed = &evidence.processes[party.process] == first;
    if (party.blamed && party.call) verdict.function = party.call->function;
  }
  return verdict;
}

/// Whether a process has gone on for a while since then: calls that others take part in, one after another.
bool has_gone_on(const ProcessEvidence& process, std::uint64_t since_ticks) {
  constexpr int kEnough = 3;
  int calls = 0;
  for (const CommunicatorEvidence& communicator : process.communicators) {
    for (std::uint64_t number = communicator.record.sequence; number > 0 && calls < kEnough; --number) {
      const auto call = process.history->call(communicator.slot, number);
      if (!call || call->started <= since_ticks) break;
      ++calls;
    }
  }
  return calls >= kEnough;
}

/// A process that has failed soon after an allocation had, and has not gone on in between, or that stands
/// still since then, while others wait for it: the first of them.
std::optional<Verdict> find_out_of_memory(const Evidence& evidence, const Waits& waits,
                                          const JudgePolicy& policy) {
  constexpr std::int64_t kSoon = 60'000'000'000;
  const ProcessEvidence* first = nullptr;
  std::int64_t first_ns = 0;
  std::int64_t first_stood_ns = 0;
  for (const ProcessEvidence& process : evidence.processes) {
    if (process.episodes.empty() || process.terminated) continue;
    const bool killed = process.signal != 0 && is_crash(process.signal);
    const bool failed = killed || (process.phase == Phase::Exiting && process.exit_status != 0) ||
                        process.phase == Phase::Aborting;
    CallRecord attempt{};
    attempt.started = process.episodes.back().started;
    const std::int64_t begun = process.history->started_ns(attempt);
    const auto waited_for =
        waits.waited_for_since(static_cast<std::size_t>(&process - evidence.processes.data()));
    const std::int64_t stood = waited_for ? evidence.now_ns - std::max(begun, *waited_for) : 0;
    const bool stands = !process.has_left() && policy.oom_grace_ns != 0 && stood >= policy.oom_grace_ns;
    if (has_gone_on(process, attempt.started)) continue;
    // Others wait for it in vain, though it says that all is well.
    const bool leaves_others = process.phase == Phase::Exiting && waited_for.has_value();
    const bool fatal = ((failed || leaves_others) && evidence.now_ns - begun <= kSoon) || stands;
    if (!fatal || (first != nullptr && begun > first_ns)) continue;
    first = &process;
    first_ns = begun;
    first_stood_ns = stands ? stood : 0;
  }
  if (first == nullptr) return std::nullopt;
  Verdict verdict;
  verdict.kind = VerdictKind::OutOfMemory;
  verdict.memory = first->episodes.back();
  add_everybody(evidence, waits, first->world_key, verdict);
  for (Party& party : verdict.parties) {
    party.blamed = &evidence.processes[party.process] == first;
    if (!party.blamed) continue;
    CallRecord attempt{};
    attempt.site = verdict.memory->site;
    party.site = first->history->site(attempt);
  }
  if (first_stood_ns != 0) {
    verdict.details.push_back(fmt::format("it has stood still for {:.1f} s since, while others wait for it",
                                          static_cast<double>(first_stood_ns) / 1e9));
  }
  if (verdict.memory->attempts > 1)
    verdict.details.push_back(fmt::format("it tried {} times", verdict.memory->attempts));
  if (verdict.memory->impossible != 0) verdict.details.emplace_back("the GPU has less than that in all");
  if (verdict.memory->idle > 0) {
    verdict.details.push_back(fmt::format(
        "the memory pool of cudaMallocAsync keeps {} MiB that nobody uses: cudaMemPoolTrimTo or a lower "
        "release threshold gives them back",
        verdict.memory->idle >> 20));
  }
  if (verdict.memory->inside == static_cast<std::uint8_t>(Library::Nccl))
    verdict.details.emplace_back("it was NCCL that asked for the memory");
  return verdict;
}

/// What a verdict of another kind may come from.
void mention_failed_allocations(const Evidence& evidence, Verdict& verdict) {
  for (const Party& party : verdict.parties) {
    const ProcessEvidence& process = evidence.processes[party.process];
    if (!process.episodes.empty()) {
      const MemoryEpisode& last = process.episodes.back();
      verdict.details.push_back(
          fmt::format("process {} had failed to allocate {} MiB on GPU {} before, with {} of {} MiB free",
                      process.world_rank, last.bytes >> 20, last.device, last.free >> 20, last.total >> 20));
    }
    if (process.broken.error != 0) {
      verdict.details.push_back(
          fmt::format("process {} got CUDA error {} from {}: its context is of no more use",
                      process.world_rank, process.broken.error, name_of(process.broken.function)));
    }
  }
}

bool somebody_aborts(const Evidence& evidence) {
  return std::any_of(evidence.processes.begin(), evidence.processes.end(),
                     [](const ProcessEvidence& process) { return process.phase == Phase::Aborting; });
}

}  // namespace

std::vector<Verdict> judge(const Evidence& evidence, const JudgePolicy& policy) {
  const auto communicators = members_of(evidence);
  std::vector<Verdict> verdicts;
  for (const auto& [key, members] : communicators) {
    if (auto verdict = find_mismatch(evidence, members, evidence.now_ns, policy.settle_ns)) {
      verdicts.push_back(std::move(*verdict));
    }
    if (auto verdict = find_pair_mismatch(evidence, members)) verdicts.push_back(std::move(*verdict));
    if (auto verdict = find_reused_id(evidence, members)) verdicts.push_back(std::move(*verdict));
    if (auto verdict = find_rank_clash(evidence, members)) verdicts.push_back(std::move(*verdict));
  }
  // Several communicators: what happened first is the cause.
  const auto started = [&](const Verdict& verdict) {
    std::int64_t earliest = INT64_MAX;
    for (const Party& party : verdict.parties) {
      if (party.call)
        earliest = std::min(earliest, evidence.processes[party.process].history->started_ns(*party.call));
    }
    return earliest;
  };
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [&](const Verdict& a, const Verdict& b) { return started(a) < started(b); });

  const Waits waits(evidence, communicators);
  if (!policy.ending && !somebody_aborts(evidence)) {
    if (auto memory = find_out_of_memory(evidence, waits, policy)) verdicts.push_back(std::move(*memory));
    if (auto crash = find_crash(evidence, waits)) verdicts.push_back(std::move(*crash));
    if (auto early = waits.find_early_exit(policy)) verdicts.push_back(std::move(*early));
    if (auto deadlock = find_stream_circle(evidence, communicators)) verdicts.push_back(std::move(*deadlock));
    if (auto deadlock = waits.find_circle()) verdicts.push_back(std::move(*deadlock));
    if (auto standstill = waits.find_standstill(policy)) verdicts.push_back(std::move(*standstill));
    if (auto late = waits.find_late(policy)) verdicts.push_back(std::move(*late));
  }
  for (const auto& [key, members] : communicators) {
    if (auto warning = find_other_datatypes(evidence, members)) verdicts.push_back(std::move(*warning));
    if (auto warning = find_other_configurations(evidence, members)) verdicts.push_back(std::move(*warning));
  }
  for (Verdict& verdict : verdicts) {
    const bool about_calls = verdict.kind == VerdictKind::Mismatch || verdict.kind == VerdictKind::Datatypes;
    if (verdict.parties.empty() || about_calls) continue;
    add_everybody(evidence, waits, evidence.processes[verdict.parties.front().process].world_key, verdict);
    if (verdict.kind != VerdictKind::OutOfMemory) mention_failed_allocations(evidence, verdict);
    // One that is still in MPI_Init has no rank yet, and nothing to say unless it is the cause.
    std::erase_if(verdict.parties, [](const Party& party) { return party.world_rank < 0 && !party.blamed; });
  }
  return verdicts;
}

}  // namespace accel
