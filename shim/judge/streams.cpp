#include "judge/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace accel {
namespace {

/// How far back calls are looked at; what is older is taken to be complete.
constexpr std::size_t kWindow = 256;
/// Nothing is looked at while calls still come in: a circle stands still.
constexpr std::int64_t kQuiet = 100'000'000;
/// A send that is not complete for so long waits for its receive.
constexpr std::int64_t kStands = 1'000'000'000;

struct Operation {
  CallRecord record;
  const Members* members = nullptr;
  std::int32_t rank = 0;  ///< of the communicator
  std::size_t launch = 0;
  bool stands = false;  ///< known not to be complete, for long
};

/// What one stream runs at once: a call, or those of a group.
struct Launch {
  std::size_t process = 0;
  std::vector<std::size_t> operations;
  std::optional<std::size_t> before;  ///< on the same stream
  bool ends = false;                  ///< sooner or later, whatever else happens
};

bool is_on_streams(const ProcessEvidence& process) {
  return std::any_of(process.communicators.begin(), process.communicators.end(),
                     [](const auto& one) { return (one.record.flags & kCommunicatorOnStream) != 0; });
}

/// Whether no call has been made for a while: only then is it worth to read what there is.
bool is_quiet(const Evidence& evidence) {
  return std::all_of(evidence.processes.begin(), evidence.processes.end(),
                     [&](const ProcessEvidence& process) {
                       if (!is_on_streams(process) || process.has_left()) return true;
                       const std::vector<CallRecord> latest = process.history->recent_on_streams(1);
                       return std::all_of(latest.begin(), latest.end(), [&](const CallRecord& record) {
                         return evidence.now_ns - process.history->started_ns(record) >= kQuiet;
                       });
                     });
}

class Play {
 public:
  Play(const Evidence& evidence, const std::map<std::uint64_t, Members>& communicators)
      : evidence_(evidence), communicators_(communicators) {
    for (std::size_t process = 0; process < evidence.processes.size(); ++process) load(process);
  }

  std::optional<Verdict> run() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Launch& launch : launches_) {
        if (launch.ends || !starts(launch)) continue;
        launch.ends = std::all_of(launch.operations.begin(), launch.operations.end(),
                                  [&](std::size_t operation) { return ends(operations_[operation]); });
        changed = changed || launch.ends;
      }
    }
    return find_circle();
  }

 private:
  using Key = std::tuple<std::uint64_t, std::int32_t, std::uint64_t>;  // communicator, rank, number
  using PairKey =
      std::tuple<std::uint64_t, std::int32_t, std::int32_t, bool, std::uint64_t>;  // and peer, sends

  void load(std::size_t process) {
    const ProcessEvidence& from = evidence_.processes[process];
    if (!is_on_streams(from) || from.has_left()) return;
    std::map<std::uint16_t, std::size_t> last;  // launch by stream
    for (const CallRecord& record : from.history->recent_on_streams(kWindow)) {
      if (record.tag == kCapturedStream) continue;  // runs when its graph is launched
      const auto slot = std::find_if(from.communicators.begin(), from.communicators.end(),
                                     [&](const auto& one) { return one.slot == record.communicator; });
      if (slot == from.communicators.end()) continue;
      const auto members = communicators_.find(slot->record.key);
      if (members == communicators_.end()) continue;
      const StreamEvidence* stream = record.tag < from.streams.size() ? &from.streams[record.tag] : nullptr;
      const bool stands = stream != nullptr && stream->record.tracked != 0 &&
                          !stream->knows_complete(record) && evidence_.now_ns - stream->since_ns >= kStands;
      const auto previous = last.find(record.tag);
      const bool together = previous != last.end() && launch_number_[previous->second] == record.launch;
      if (!together) {
        Launch launch;
        launch.process = process;
        if (previous != last.end()) launch.before = previous->second;
        last[record.tag] = launches_.size();
        launch.ends = stream != nullptr && stream->knows_complete(record);
        launches_.push_back(launch);
        launch_number_.push_back(record.launch);
      }
      const std::size_t launch = last[record.tag];
      launches_[launch].operations.push_back(operations_.size());
      if (traits(record.function).numbered) {
        by_number_[{members->first, slot->record.rank, record.sequence}] = operations_.size();
      } else {
        const bool sends = traits(record.function).flow == Flow::ToPeer;
        by_pair_[{members->first, slot->record.rank, record.root, sends, record.sequence}] =
            operations_.size();
      }
      operations_.push_back({record, &members->second, slot->record.rank, launch, stands});
    }
  }

  bool starts(const Launch& launch) const { return !launch.before || launches_[*launch.before].ends; }

  static bool needs(const Operation& one, std::int32_t peer) {
    if (peer == one.rank || one.record.count <= 0) return false;
    switch (traits(one.record.function).flow) {
      case Flow::Everyone:
        return true;
      case Flow::FromRoot:
        return one.rank != one.record.root && peer == one.record.root;
      case Flow::ToRoot:
        return one.rank == one.record.root;
      default:
        return false;
    }
  }

  static bool is_pair(const Operation& one) { return !traits(one.record.function).numbered; }

  /// The other side of a point-to-point call; nullopt: not called yet, or long ago.
  std::optional<std::size_t> counterpart(const Operation& one) const {
    const bool sends = traits(one.record.function).flow == Flow::ToPeer;
    const auto there =
        by_pair_.find({one.members->key, one.record.root, one.rank, !sends, one.record.sequence});
    return there != by_pair_.end() ? std::optional(there->second) : std::nullopt;
  }
  static bool needs_counterpart(const Operation& one) {
    return traits(one.record.function).flow == Flow::FromPeer || one.stands;
  }

  /// The launch of another rank without which this call cannot end, and which cannot start; nullopt: there is
  /// none.
  std::optional<std::size_t> waits_for(const Operation& one) const {
    if (one.members->aborted || one.members->opaque || one.members->twice) return std::nullopt;
    if (is_pair(one)) {
      const auto other = needs_counterpart(one) ? counterpart(one) : std::nullopt;
      if (!other || starts(launches_[operations_[*other].launch])) return std::nullopt;
      return operations_[*other].launch;
    }
    for (const Member& member : one.members->seen) {
      const std::int32_t peer = member.communicator.record.rank;
      if (!needs(one, peer)) continue;
      const auto there = by_number_.find({one.members->key, peer, one.record.sequence});
      // Not called yet is somebody else's business; called long ago is complete.
      if (there == by_number_.end()) continue;
      const std::size_t launch = operations_[there->second].launch;
      if (!starts(launches_[launch])) return launch;
    }
    return std::nullopt;
  }

  /// Whether a call that has started comes to an end, for all that is known.
  bool ends(const Operation& one) const {
    if (one.members->aborted || one.members->opaque || one.members->twice) return true;
    if (is_pair(one)) return !needs_counterpart(one) || (counterpart(one) && !waits_for(one));
    for (const Member& member : one.members->seen) {
      const std::int32_t peer = member.communicator.record.rank;
      if (!needs(one, peer)) continue;
      if (member.communicator.record.sequence < one.record.sequence) return false;
    }
    return !waits_for(one);
  }

  std::size_t head_of(std::size_t launch) const {
    while (launches_[launch].before && !launches_[*launches_[launch].before].ends)
      launch = *launches_[launch].before;
    return launch;
  }

  std::optional<Verdict> find_circle() const {
    for (std::size_t first = 0; first < launches_.size(); ++first) {
      if (launches_[first].ends || !starts(launches_[first])) continue;
      // From one that stands at the head of its stream to the head of the stream that it waits for, and so
      // on.
      std::vector<std::size_t> path;
      std::vector<const Operation*> calls;
      for (std::size_t at = first;;) {
        const auto seen = std::find(path.begin(), path.end(), at);
        if (seen != path.end()) return describe(calls, static_cast<std::size_t>(seen - path.begin()));
        const Operation* stuck = nullptr;
        std::optional<std::size_t> next;
        for (const std::size_t operation : launches_[at].operations) {
          if (next) break;
          stuck = &operations_[operation];
          next = waits_for(*stuck);
        }
        if (!next) break;  // it waits for a call that may yet come
        path.push_back(at);
        calls.push_back(stuck);
        at = head_of(*next);
      }
    }
    return std::nullopt;
  }

  Verdict describe(const std::vector<const Operation*>& calls, std::size_t begin) const {
    Verdict verdict;
    verdict.kind = VerdictKind::Deadlock;
    verdict.function = calls[begin]->record.function;
    verdict.sequence = calls[begin]->record.sequence;
    verdict.communicator = calls[begin]->members->key;
    verdict.size = calls[begin]->members->size;
    for (std::size_t i = begin; i < calls.size(); ++i) {
      const Operation& one = *calls[i];
      const std::size_t process = launches_[one.launch].process;
      const std::size_t next = i + 1 < calls.size() ? i + 1 : begin;
      Party party = make_party(evidence_, process, one.record);
      party.blamed = true;
      party.inside = true;
      verdict.parties.push_back(std::move(party));
      verdict.details.push_back(fmt::format(
          "process {} has {} (#{} on communicator {:08x}) at the head of its stream, which needs process {}",
          evidence_.processes[process].world_rank, traits(one.record.function).name, one.record.sequence,
          static_cast<std::uint32_t>(one.members->key >> 32),
          evidence_.processes[launches_[calls[next]->launch].process].world_rank));
    }
    return verdict;
  }

  const Evidence& evidence_;
  const std::map<std::uint64_t, Members>& communicators_;
  std::vector<Operation> operations_;
  std::vector<Launch> launches_;
  std::vector<std::uint16_t> launch_number_;
  std::map<Key, std::size_t> by_number_;
  std::map<PairKey, std::size_t> by_pair_;
};

}  // namespace

std::optional<Verdict> find_stream_circle(const Evidence& evidence,
                                          const std::map<std::uint64_t, Members>& communicators) {
  const auto on_streams = std::count_if(communicators.begin(), communicators.end(),
                                        [](const auto& one) { return one.second.on_stream; });
  const bool pairs = std::any_of(evidence.processes.begin(), evidence.processes.end(),
                                 [](const ProcessEvidence& process) { return !process.pairs.empty(); });
  // Collectives of one communicator have one order.
  if (on_streams == 0 || (on_streams == 1 && !pairs)) return std::nullopt;
  return is_quiet(evidence) ? Play(evidence, communicators).run() : std::nullopt;
}

}  // namespace accel
