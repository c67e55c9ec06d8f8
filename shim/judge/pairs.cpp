// Point-to-point calls of NCCL have no tags: the n-th send from one rank to another is for the n-th receive,
// and both must mean the same number of bytes. And each rank of a communicator must be claimed by one
// process.
#include <fmt/format.h>

#include <algorithm>

#include "judge/judge.h"
#include "judge/members.h"

namespace accel {
namespace {

const PairRecord* pair_of(const ProcessEvidence& process, std::uint64_t communicator, std::int32_t peer,
                          std::uint32_t direction) {
  for (const PairRecord& pair : process.pairs) {
    if (pair.communicator == communicator && pair.peer == peer && pair.direction == direction) return &pair;
  }
  return nullptr;
}

/// What a member has to do with the call of that number.
Party party_at(const Evidence& evidence, const Member& member, std::uint64_t number) {
  const auto& history = evidence.processes[member.process].history;
  return make_party(evidence, member.process, history->call(member.communicator.slot, number));
}

constexpr std::uint32_t kSends = 0;
constexpr std::uint32_t kReceives = 1;

}  // namespace

std::optional<Verdict> find_pair_mismatch(const Evidence& evidence, const Members& members) {
  if (!members.on_stream || members.opaque || members.aborted || members.twice) return std::nullopt;
  for (const Member& sender : members.seen) {
    const ProcessEvidence& from = evidence.processes[sender.process];
    for (const PairRecord& pair : from.pairs) {
      if (pair.communicator != members.key || pair.direction != kSends) continue;
      const auto receiver = std::find_if(members.seen.begin(), members.seen.end(), [&](const Member& one) {
        return one.communicator.record.rank == pair.peer;
      });
      if (receiver == members.seen.end()) continue;
      const ProcessEvidence& to = evidence.processes[receiver->process];
      const std::int32_t sender_rank = sender.communicator.record.rank;
      const PairRecord* other = pair_of(to, members.key, sender_rank, kReceives);
      const std::uint64_t both = other != nullptr ? std::min(pair.count, other->count) : 0;
      // Cheap and nearly always the end of it; what differs here may have been read while it was written.
      const std::uint64_t apart = both != 0 ? std::max(pair.count, other->count) - both : 0;
      if (both == 0 || (apart < std::size(pair.chains) && pair.chains[both % 8] == other->chains[both % 8]))
        continue;
      const auto sent_at = [&](std::uint64_t n) {
        return from.history->pair_call(Function::NcclSend, sender.communicator.slot, pair.peer, n);
      };
      const auto received_at = [&](std::uint64_t n) {
        return to.history->pair_call(Function::NcclRecv, receiver->communicator.slot, sender_rank, n);
      };
      auto sent = sent_at(both);
      auto received = received_at(both);
      if (!sent || !received || sent->chain == received->chain) continue;
      // Back to the first that differs.
      std::uint64_t first = both;
      while (first > 1) {
        const auto a = sent_at(first - 1);
        const auto b = received_at(first - 1);
        if (!a || !b || a->chain == b->chain) break;
        sent = a;
        received = b;
        --first;
      }
      Verdict verdict;
      verdict.communicator = members.key;
      verdict.size = members.size;
      verdict.function = Function::NcclSend;
      verdict.parties.push_back(make_party(evidence, sender.process, sent));
      verdict.parties.push_back(make_party(evidence, receiver->process, received));
      verdict.fields.push_back(Field::Count);
      if (sent->datatype != received->datatype) verdict.fields.push_back(Field::Datatype);
      verdict.details.push_back(fmt::format("message {} from rank {} to rank {} of the communicator", first,
                                            sender_rank, pair.peer));
      verdict.settled = !verdict.parties[0].inside && !verdict.parties[1].inside;
      return verdict;
    }
  }
  return std::nullopt;
}

namespace {

/// How far back a call is searched in which ranks that agree in all that must agree differ in something else.
constexpr std::uint64_t kBack = 256;

/// Whether a word of the communicator's record, which sums up all calls so far, differs between members that
/// have come equally far and agree: only then is one word enough.
bool differ_in(const Members& members, std::uint64_t CommunicatorRecord::*word) {
  if (!members.on_stream || members.opaque || members.aborted || !members.complete()) return false;
  const CommunicatorRecord& first = members.seen.front().communicator.record;
  bool differ = false;
  for (const Member& member : members.seen) {
    const CommunicatorRecord& record = member.communicator.record;
    if (record.sequence != first.sequence || record.chain != first.chain) return false;
    differ = differ || record.*word != first.*word;
  }
  return differ;
}

/// The warning about one call, with all members' records of it; nullopt where one is overwritten.
std::optional<Verdict> warning_at(const Evidence& evidence, const Members& members, std::uint64_t number) {
  Verdict verdict;
  verdict.kind = VerdictKind::Datatypes;
  verdict.communicator = members.key;
  verdict.sequence = number;
  verdict.size = members.size;
  for (const Member& member : members.seen) {
    verdict.parties.push_back(party_at(evidence, member, number));
    if (!verdict.parties.back().call) return std::nullopt;
    verdict.function = verdict.parties.back().call->function;
  }
  return verdict;
}

template <class Word>
bool calls_differ_in(const Verdict& verdict, Word CallRecord::*word) {
  const CallRecord& first = *verdict.parties.front().call;
  return std::any_of(verdict.parties.begin(), verdict.parties.end(),
                     [&](const Party& party) { return *party.call.*word != first.*word; });
}

}  // namespace

std::optional<Verdict> find_other_datatypes(const Evidence& evidence, const Members& members) {
  if (!differ_in(members, &CommunicatorRecord::types)) return std::nullopt;
  const std::uint64_t latest = members.seen.front().communicator.record.sequence;
  for (std::uint64_t number = latest; number > 0 && latest - number < kBack; --number) {
    auto verdict = warning_at(evidence, members, number);
    if (!verdict) return std::nullopt;
    if (calls_differ_in(*verdict, &CallRecord::datatype) && traits(verdict->function).bytes_only)
      return verdict;
  }
  return std::nullopt;
}

std::optional<Verdict> find_other_configurations(const Evidence& evidence, const Members& members) {
  if (!differ_in(members, &CommunicatorRecord::balance)) return std::nullopt;
  const std::uint64_t latest = members.seen.front().communicator.record.sequence;
  // The sums grow apart at the call that is asked for, and stay apart: back to where they still are the same.
  std::optional<Verdict> found;
  for (std::uint64_t number = latest; number > 0 && latest - number < kBack; --number) {
    auto verdict = warning_at(evidence, members, number);
    if (!verdict || !calls_differ_in(*verdict, &CallRecord::balance)) return found;
    verdict->fields = {Field::Configuration};
    for (Party& party : verdict->parties) {
      const auto same =
          std::count_if(verdict->parties.begin(), verdict->parties.end(),
                        [&](const Party& other) { return other.call->balance == party.call->balance; });
      party.blamed = 2 * same < static_cast<std::ptrdiff_t>(verdict->parties.size());
    }
    found = std::move(verdict);
  }
  return found;
}

std::optional<Verdict> find_reused_id(const Evidence& evidence, const Members& members) {
  // A rank is still inside, after a time in which a communicator comes into being.
  constexpr std::int64_t kLong = 500'000'000;
  if (!members.reused || members.aborted) return std::nullopt;
  bool stands = false;
  Verdict verdict;
  verdict.communicator = members.key;
  verdict.sequence = 1;
  verdict.size = members.size;
  verdict.function = Function::NcclCommInitRank;
  verdict.fields = {Field::UniqueId};
  for (const Member& member : members.seen) {
    const ProcessEvidence& process = evidence.processes[member.process];
    for (const BlockedCall& call : process.blocked) {
      stands = stands || (call.record.communicator == member.communicator.slot &&
                          call.record.function == Function::NcclCommInitRank &&
                          evidence.now_ns - call.since_ns >= kLong);
    }
    Party party = party_at(evidence, member, 1);
    party.blamed = (member.communicator.record.flags & kCommunicatorReused) != 0;
    verdict.parties.push_back(std::move(party));
  }
  return stands ? std::optional(verdict) : std::nullopt;
}

std::optional<Verdict> find_rank_clash(const Evidence& evidence, const Members& members) {
  if (!members.on_stream || !members.twice || members.aborted) return std::nullopt;
  for (std::size_t i = 1; i < members.seen.size(); ++i) {
    const Member& one = members.seen[i - 1];
    const Member& other = members.seen[i];
    const std::int32_t rank = one.communicator.record.rank;
    if (rank != other.communicator.record.rank || one.process == other.process) continue;
    Verdict verdict;
    verdict.communicator = members.key;
    verdict.sequence = 1;
    verdict.size = members.size;
    verdict.function = Function::NcclCommInitRank;
    verdict.fields = {Field::Rank};
    for (const Member& member : members.seen) {
      Party party = party_at(evidence, member, 1);
      party.blamed = member.communicator.record.rank == rank;
      party.state = fmt::format("ncclCommInitRank as rank {} of {}", member.communicator.record.rank,
                                member.communicator.record.size);
      verdict.settled = verdict.settled && party.call.has_value();
      verdict.parties.push_back(std::move(party));
    }
    return verdict;
  }
  return std::nullopt;
}

}  // namespace accel
