#include "launcher/inspect/timed_calls.h"

#include <algorithm>
#include <map>

#include "judge/members.h"
#include "report/shape.h"

namespace accel {
namespace {

std::string shape_of(const Collectives::Rank& rank, const CallRecord& record,
                     std::map<DatatypeId, DatatypeEvidence>& datatypes) {
  const auto [datatype, is_new] = datatypes.try_emplace(record.datatype);
  if (is_new) datatype->second = rank.reader().datatype(record.datatype);
  std::vector<std::int64_t> counts;
  if (traits(record.function).vector) {
    if (const auto vectors = rank.reader().vectors(record)) counts = significant_counts(record, *vectors);
  }
  return shape(record, datatype->second, counts);
}

int track_of(const CallRecord& record) {
  const FunctionTraits& what = traits(record.function);
  if (what.on_stream) return TimedCall::kFirstStream + record.tag;
  return what.numbered ? TimedCall::kHost : TimedCall::kPointToPoint;
}

/// A call whose end is not known is shown for so long, that it can be seen and pointed at.
constexpr std::int64_t kAtLeast = 1000;

/// Nothing on a track begins before what stands in front of it is over.
void end_in_time(std::vector<TimedCall>& calls) {
  std::map<int, std::int64_t> next;  ///< beginning, by track
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    const auto [place, is_last] = next.try_emplace(call->track, call->begin_ns);
    if (!is_last) {
      call->end_ns = std::min(call->end_ns, place->second);
      call->waited_ns = std::min(call->waited_ns, call->end_ns - call->begin_ns);
      place->second = call->begin_ns;
    }
  }
}

}  // namespace

std::vector<TimedCall> timed_calls(Collectives& collectives, Collectives::Rank& rank, std::uint64_t most,
                                   bool with_shapes) {
  std::vector<TimedCall> calls;
  std::map<DatatypeId, DatatypeEvidence> datatypes;
  const std::int64_t alive_until =
      rank.process.alive ? monotonic_ns() : rank.reader().header().latest.monotonic_ns;
  const auto add = [&](const CallRecord& record, std::int64_t begin_ns, std::uint64_t communicator) {
    TimedCall call;
    call.track = track_of(record);
    call.function = record.function;
    call.communicator = communicator;
    call.sequence = record.sequence;
    call.begin_ns = begin_ns;
    call.end_ns = begin_ns + kAtLeast;
    call.bytes = rank.calls.bytes_of(record);
    call.returned = record.returned != 0;
    if (const std::uint64_t ticks = Duration::decode(record.returned); ticks != 0)
      call.end_ns = begin_ns + rank.calls.nanoseconds(static_cast<std::int64_t>(ticks));
    if (!call.returned) call.end_ns = std::max(alive_until, begin_ns);
    if (with_shapes) call.shape = shape_of(rank, record, datatypes);
    calls.push_back(std::move(call));
  };
  collectives.each(
      rank,
      [&](const Collectives::Call& one) {
        add(one.record, one.arrival.started_ns, one.communicator.key);
        TimedCall& call = calls.back();
        const Meeting* const meeting = collectives.meeting_of(one);
        if (meeting == nullptr) return;
        call.waited_ns = waited(one.arrival, *meeting, collectives.size_of_meeting(one));
        call.end_ns = std::max(call.end_ns, call.begin_ns + call.waited_ns);
        call.is_shared = meeting->seen > 1;
        call.is_first = meeting->first_ns == one.arrival.started_ns;
        call.is_last = meeting->last == rank.index();
        call.last_rank = collectives.ranks()[meeting->last].process.world_rank;
      },
      most);
  const std::int64_t since = calls.empty() || most == UINT64_MAX ? INT64_MIN : calls.front().begin_ns;
  UnnumberedTail others(rank.calls.shared_reader());
  others.writer_is_gone();
  others.read([&](const CallRecord& record, std::uint64_t) {
    const bool is_known = record.function != Function::None && record.function < Function::Count_;
    if (const std::int64_t begin_ns = rank.calls.monotonic(record.started); is_known && begin_ns >= since)
      add(record, begin_ns, rank.calls.membership(record).key);
  });
  std::stable_sort(calls.begin(), calls.end(),
                   [](const TimedCall& a, const TimedCall& b) { return a.begin_ns < b.begin_ns; });
  end_in_time(calls);
  return calls;
}

}  // namespace accel
