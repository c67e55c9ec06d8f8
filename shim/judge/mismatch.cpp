// Do all members mean the same by the n-th call? One comparison of two words tells for the whole past; only
// when they differ are the records searched for the first call that differs.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "judge/judge.h"
#include "judge/members.h"

namespace accel {
namespace {

std::optional<CallRecord> call_at(const Evidence& evidence, const Member& member, std::uint64_t sequence) {
  const auto& history = evidence.processes[member.process].history;
  if (!history) return std::nullopt;
  return history->call(member.communicator.slot, sequence);
}

/// The chain after `sequence` calls; nullopt where the ring no longer holds it.
std::optional<std::uint64_t> chain_at(const Evidence& evidence, const Member& member,
                                      std::uint64_t sequence) {
  const CommunicatorRecord& record = member.communicator.record;
  if (sequence == record.sequence) return record.chain;
  if (sequence == 0) return record.key;
  const auto call = call_at(evidence, member, sequence);
  return call ? std::optional(call->chain) : std::nullopt;
}

/// First number in (0, last] for which `differs` answers true, given that it does at `last` and stays true
/// from the first one on; nullopt answers (overwritten records) count as "not yet".
std::uint64_t first_difference(std::uint64_t last,
                               const std::function<std::optional<bool>(std::uint64_t)>& differs) {
  std::uint64_t low = 0;
  std::uint64_t high = last;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (differs(middle).value_or(false)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return high;
}

std::vector<Field> differing_fields(const Party& one, const Party& other) {
  const CallRecord& a = *one.call;
  const CallRecord& b = *other.call;
  const FunctionTraits& what = traits(a.function);
  if (what.kind != traits(b.function).kind) return {Field::Kind};
  if (a.function == Function::NcclCommInitRank) return {Field::Size};
  std::vector<Field> fields;
  if (what.on_stream && (a.tag == kCapturedStream) != (b.tag == kCapturedStream))
    fields.push_back(Field::Captured);
  if (a.op != b.op) fields.push_back(Field::ReduceOp);
  if (a.root != b.root) fields.push_back(Field::Root);
  if (!what.data) return fields;
  if (what.bytes_only) {
    const NcclDatatype* ours = nccl_datatype(a.datatype);
    const NcclDatatype* theirs = nccl_datatype(b.datatype);
    const bool same =
        ours != nullptr && theirs != nullptr && a.count * ours->bytes == b.count * theirs->bytes;
    if (!same) fields.push_back(Field::Count);
    return fields;
  }
  if (what.vector) {
    if (fields.empty()) fields.push_back(Field::Peers);
    return fields;
  }
  const bool both_known = one.datatype.known && other.datatype.known;
  if (both_known &&
      block_hash(one.datatype.signature, a.count) == block_hash(other.datatype.signature, b.count)) {
    return fields;
  }
  const bool same_type =
      a.datatype == b.datatype || (both_known && one.datatype.signature == other.datatype.signature);
  if (!same_type) fields.push_back(Field::Datatype);
  if (a.count != b.count) fields.push_back(Field::Count);
  return fields;
}

/// Marks those outside the largest group of equal calls; nobody where two groups are equally large.
void blame_minority(std::vector<Party>& parties) {
  std::map<std::uint64_t, std::size_t> groups;
  for (const Party& party : parties) {
    if (party.call) ++groups[party.call->chain];
  }
  const auto largest = std::max_element(groups.begin(), groups.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto as_large = std::count_if(groups.begin(), groups.end(),
                                      [&](const auto& group) { return group.second == largest->second; });
  if (as_large > 1) return;
  for (Party& party : parties) party.blamed = party.call && party.call->chain != largest->first;
}

/// For Allgatherv and Reduce_scatter: where the vectors that must be equal are not.
void explain_same_vectors(const Evidence& evidence, Verdict& verdict) {
  const auto vectors_of = [&](const Party& party) {
    return party.call ? evidence.processes[party.process].history->vectors(*party.call) : std::nullopt;
  };
  const auto reference = std::find_if(verdict.parties.begin(), verdict.parties.end(),
                                      [](const Party& party) { return party.call && !party.blamed; });
  if (reference == verdict.parties.end()) return;
  const auto expected = vectors_of(*reference);
  if (!expected || !expected->same_everywhere) return;
  for (const Party& party : verdict.parties) {
    const auto given = vectors_of(party);
    if (!given || !given->same_everywhere || given->expects.size() != expected->expects.size()) continue;
    for (std::size_t i = 0; i < given->expects.size(); ++i) {
      if (given->expects[i].hash == expected->expects[i].hash) continue;
      const bool only_type = given->expects[i].count == expected->expects[i].count;
      verdict.details.push_back(
          only_type
              ? fmt::format("recvcounts[{}] is {} on both process {} and process {}, but of another datatype",
                            i, given->expects[i].count, reference->world_rank, party.world_rank)
              : fmt::format("recvcounts[{}] is {} on process {}, {} on process {}", i,
                            expected->expects[i].count, reference->world_rank, given->expects[i].count,
                            party.world_rank));
      break;
    }
  }
}

/// NCCL drops collectives with count 0, on that rank alone.
void explain_dropped_calls(Verdict& verdict) {
  const auto drops = [](const Party& party) { return party.call && party.call->count == 0; };
  if (traits(verdict.function).library != Library::Nccl || !traits(verdict.function).data) return;
  if (std::all_of(verdict.parties.begin(), verdict.parties.end(), drops)) return;
  for (const Party& party : verdict.parties) {
    if (!drops(party)) continue;
    verdict.details.push_back(fmt::format(
        "process {} passes count 0: NCCL drops the call there, and the others wait for it for ever",
        party.world_rank));
  }
}

Verdict describe(const Evidence& evidence, const Members& members, std::uint64_t sequence,
                 std::int64_t now_ns, std::int64_t settle_ns) {
  Verdict verdict;
  verdict.communicator = members.key;
  verdict.sequence = sequence;
  verdict.size = members.size;
  std::int64_t latest = 0;
  bool all_arrived = true;
  for (const Member& member : members.seen) {
    const ProcessEvidence& process = evidence.processes[member.process];
    const bool arrived = member.communicator.record.sequence >= sequence;
    Party party =
        make_party(evidence, member.process, arrived ? call_at(evidence, member, sequence) : std::nullopt);
    if (!party.call) {
      party.state = arrived                 ? "has gone on; the record of this call was overwritten"
                    : process.has_left()    ? describe_departure(process)
                    : has_destroyed(member) ? "has called ncclCommDestroy"
                                            : "has not made this call yet";
    }
    // Several ranks in one process are told apart by their rank of the communicator.
    if (std::count_if(members.seen.begin(), members.seen.end(),
                      [&](const Member& other) { return other.process == member.process; }) > 1)
      party.world_rank = member.communicator.record.rank;
    all_arrived = all_arrived && (arrived || process.has_left() || has_destroyed(member));
    for (const BlockedCall& blocked : process.blocked) latest = std::max(latest, blocked.since_ns);
    // Of calls that return at once, the start counts; one that has not returned yet may still be refused.
    if (party.call && traits(party.call->function).library == Library::Nccl) {
      latest = std::max(latest, process.history->started_ns(*party.call));
      all_arrived = all_arrived && !party.inside;
    }
    verdict.parties.push_back(std::move(party));
  }
  // One that is not seen may live elsewhere, or be still inside the call that makes the communicator.
  verdict.settled = (all_arrived && members.complete()) || now_ns - latest >= settle_ns;
  blame_minority(verdict.parties);
  return verdict;
}

void name_fields(const Evidence& evidence, Verdict& verdict) {
  const auto blamed = std::find_if(verdict.parties.begin(), verdict.parties.end(),
                                   [](const Party& party) { return party.blamed; });
  const Party* reference = nullptr;
  for (const Party& party : verdict.parties) {
    if (party.call && !party.blamed && reference == nullptr) reference = &party;
  }
  if (reference == nullptr) return;
  verdict.function = reference->call->function;
  for (const Party& party : verdict.parties) {
    const bool other = party.call && party.call->chain != reference->call->chain;
    if (!other || (blamed != verdict.parties.end() && !party.blamed)) continue;
    for (const Field field : differing_fields(*reference, party)) {
      if (std::find(verdict.fields.begin(), verdict.fields.end(), field) == verdict.fields.end()) {
        verdict.fields.push_back(field);
      }
    }
  }
  explain_same_vectors(evidence, verdict);
  explain_dropped_calls(verdict);
}

/// If some have called MPI_Finalize where others still wait in a collective, that is the plainer name for it.
void recognise_early_finalize(Verdict& verdict) {
  bool finalizes = false;
  bool waits = false;
  for (const Party& party : verdict.parties) {
    if (!party.call) continue;
    if (party.call->function == Function::Finalize) {
      finalizes = true;
    } else {
      waits = waits || party.inside;
    }
  }
  if (!finalizes || !waits) return;
  verdict.kind = VerdictKind::EarlyExit;
  verdict.fields.clear();
  for (Party& party : verdict.parties) {
    const bool left = party.call && party.call->function == Function::Finalize;
    if (left) party.state = "has called MPI_Finalize";
    party.blamed = left;
    if (!left && party.call) verdict.function = party.call->function;
  }
}

std::optional<Verdict> find_disagreement(const Evidence& evidence, const Members& members,
                                         std::int64_t now_ns, std::int64_t settle_ns) {
  std::vector<std::uint64_t> levels;
  for (const Member& member : members.seen) levels.push_back(member.communicator.record.sequence);
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());

  for (const std::uint64_t level : levels) {
    if (level == 0) continue;
    const Member* reference = nullptr;
    std::uint64_t expected = 0;
    for (const Member& member : members.seen) {
      if (member.communicator.record.sequence < level) continue;
      const auto chain = chain_at(evidence, member, level);
      if (!chain) continue;
      if (reference == nullptr) {
        reference = &member;
        expected = *chain;
      } else if (*chain != expected) {
        const std::uint64_t first = first_difference(level, [&](std::uint64_t n) -> std::optional<bool> {
          const auto a = chain_at(evidence, *reference, n);
          const auto b = chain_at(evidence, member, n);
          if (!a || !b) return std::nullopt;
          return *a != *b;
        });
        Verdict verdict = describe(evidence, members, first, now_ns, settle_ns);
        name_fields(evidence, verdict);
        recognise_early_finalize(verdict);
        return verdict;
      }
    }
  }
  return std::nullopt;
}

/// The pairs of ranks whose blocks do not meet.
void explain_pairs(const Evidence& evidence, const Members& members, Verdict& verdict) {
  std::vector<std::optional<VectorEvidence>> vectors;
  for (const Party& party : verdict.parties) {
    vectors.push_back(party.call ? evidence.processes[party.process].history->vectors(*party.call)
                                 : std::nullopt);
  }
  const auto count_of = [](const std::vector<PeerBlock>& blocks, std::size_t peer) {
    return peer < blocks.size() ? blocks[peer] : PeerBlock{};
  };
  for (std::size_t from = 0; from < members.seen.size(); ++from) {
    for (std::size_t to = 0; to < members.seen.size(); ++to) {
      if (!vectors[from] || !vectors[to]) continue;
      const PeerBlock sent = count_of(vectors[from]->sends, to);
      const PeerBlock expected = vectors[to]->same_everywhere
                                     ? (from == to ? count_of(vectors[to]->expects, to) : sent)
                                     : count_of(vectors[to]->expects, from);
      if (sent.hash == expected.hash) continue;
      const char* tail = sent.count == expected.count ? " elements of another datatype" : "";
      verdict.details.push_back(fmt::format("process {} sends {} elements to process {}, which expects {}{}",
                                            verdict.parties[from].world_rank, sent.count,
                                            verdict.parties[to].world_rank, expected.count, tail));
    }
  }
}

/// Only when all members are seen: otherwise the missing ones' words are missing from the sum.
std::optional<Verdict> find_imbalance(const Evidence& evidence, const Members& members, std::int64_t now_ns,
                                      std::int64_t settle_ns) {
  if (!members.complete()) return std::nullopt;
  std::uint64_t level = UINT64_MAX;
  for (const Member& member : members.seen) level = std::min(level, member.communicator.record.sequence);
  const auto sum_at = [&](std::uint64_t sequence) -> std::optional<std::uint64_t> {
    std::uint64_t sum = 0;
    for (const Member& member : members.seen) {
      const CommunicatorRecord& record = member.communicator.record;
      if (sequence == record.sequence) {
        sum += record.balance;
      } else if (const auto call = call_at(evidence, member, sequence)) {
        sum += call->balance;
      } else {
        return std::nullopt;
      }
    }
    return sum;
  };
  if (level == 0 || sum_at(level).value_or(0) == 0) return std::nullopt;
  const std::uint64_t first = first_difference(level, [&](std::uint64_t n) -> std::optional<bool> {
    const auto sum = sum_at(n);
    if (!sum) return std::nullopt;
    return *sum != 0;
  });
  Verdict verdict = describe(evidence, members, first, now_ns, settle_ns);
  for (const Party& party : verdict.parties) {
    if (party.call) verdict.function = party.call->function;
  }
  verdict.fields = {Field::Peers};
  explain_pairs(evidence, members, verdict);
  return verdict;
}

}  // namespace

std::optional<Verdict> find_mismatch(const Evidence& evidence, const Members& members, std::int64_t now_ns,
                                     std::int64_t settle_ns) {
  if (members.opaque || members.aborted || members.twice || members.seen.empty()) return std::nullopt;
  if (auto verdict = find_disagreement(evidence, members, now_ns, settle_ns)) return verdict;
  // NCCL's balance is something else.
  return members.on_stream ? std::nullopt : find_imbalance(evidence, members, now_ns, settle_ns);
}

}  // namespace accel
