// The processes seen of one communicator.
#pragma once
#include <map>
#include <vector>

#include "judge/verdict.h"

namespace accel {

struct Member {
  std::size_t process = 0;  ///< index into Evidence::processes
  CommunicatorEvidence communicator;
};

/// Members by communicator rank. Of an inter-communicator both sides share the key and ranks repeat.
struct Members {
  std::uint64_t key = 0;
  std::int32_t size = 0;
  bool opaque = false;  ///< something on it cannot be compared
  bool inter = false;
  bool on_stream = false;  ///< NCCL
  bool aborted = false;    ///< somebody has given it up
  bool reused = false;     ///< its ncclUniqueId had been used before
  bool twice = false;      ///< two members have the same rank
  std::vector<Member> seen;

  /// Ranks that no seen member has.
  std::vector<std::int32_t> absent() const;

  bool complete() const { return !inter && !twice && static_cast<std::size_t>(size) == seen.size(); }
};

/// Of every communicator in the evidence, by key. A slot that was reused counts for its latest communicator
/// only.
std::map<std::uint64_t, Members> members_of(const Evidence& evidence);

/// A party with what its history knows of `record`.
Party make_party(const Evidence& evidence, std::size_t process, const std::optional<CallRecord>& record);

/// Of a vector collective the counts that say most: the root's, or what each receives; where there is only
/// this rank's own block, that.
std::vector<std::int64_t> significant_counts(const CallRecord& record, const VectorEvidence& vectors);

/// The member that this process is; nullptr if it is none. Where a process holds several ranks: the first.
const Member* member_of(const Members& members, std::size_t process);

/// Has called ncclCommDestroy and so will make no other call on it.
bool has_destroyed(const Member& member);

/// The first disagreement of a sender and a receiver (ncclSend, ncclRecv) on one communicator.
std::optional<Verdict> find_pair_mismatch(const Evidence& evidence, const Members& members);

/// Two processes that claim the same rank of an NCCL communicator.
std::optional<Verdict> find_rank_clash(const Evidence& evidence, const Members& members);

/// An ncclUniqueId that is used for a second communicator: NCCL waits there for ever.
std::optional<Verdict> find_reused_id(const Evidence& evidence, const Members& members);

/// The latest call in which ranks called the same bytes by different datatypes: harmless in NCCL, and perhaps
/// not meant.
std::optional<Verdict> find_other_datatypes(const Evidence& evidence, const Members& members);
/// NCCL: ranks that ask for the same call in different ways (ncclCollConfig_t). A warning.
std::optional<Verdict> find_other_configurations(const Evidence& evidence, const Members& members);

/// The first disagreement on one communicator, if there is one.
std::optional<Verdict> find_mismatch(const Evidence& evidence, const Members& members, std::int64_t now_ns,
                                     std::int64_t settle_ns);

}  // namespace accel
