#include "timing/process_calls.h"

namespace accel {

ProcessCalls::ProcessCalls(std::shared_ptr<const RecordReader> reader, std::uint32_t index)
    : reader_(std::move(reader)), index_(index), memberships_(kMaxCommunicators) {
  begin_ticks_ = reader_->header().begin.ticks;
  begin_ns_ = reader_->header().begin.monotonic_ns;
}

void ProcessCalls::update(const ProcessEvidence& process, const std::function<bool(std::uint64_t)>& counts) {
  constexpr std::uint64_t kFar = std::uint64_t{1} << 40;
  ns_per_tick_ =
      static_cast<double>(reader_->monotonic(begin_ticks_ + kFar) - begin_ns_) / static_cast<double>(kFar);
  for (const CommunicatorEvidence& one : process.communicators) {
    if (counts && !counts(one.record.key)) continue;
    memberships_[one.slot % kMaxCommunicators] = {one.record.key, one.record.rank, one.record.size,
                                                  process.alive ? UINT64_MAX : one.record.sequence,
                                                  one.record.born};
  }
}

std::int64_t ProcessCalls::bytes_of(const CallRecord& call) {
  const FunctionTraits& what = traits(call.function);
  if (!what.data || what.vector || call.count <= 0) return 0;
  if (latest_datatype_.first != call.datatype) {
    const auto [found, is_new] = datatype_bytes_.try_emplace(call.datatype);
    if (is_new) {
      const DatatypeEvidence datatype = reader_->datatype(call.datatype);
      found->second = static_cast<std::int64_t>(datatype.signature.length) * size_of(datatype.signature.only);
    }
    latest_datatype_ = *found;
  }
  std::int64_t bytes = 0;
  return __builtin_mul_overflow(latest_datatype_.second, call.count, &bytes) ? 0 : bytes;
}

Arrival ProcessCalls::arrival_of(const CallRecord& call) {
  const Membership& in = membership(call);
  Arrival arrival;
  arrival.process = index_;
  arrival.function = call.function;
  arrival.root = traits(call.function).rooted ? call.root : -1;
  arrival.rank = in.rank;
  arrival.sequence = call.sequence;
  arrival.started_ns = monotonic(call.started);
  if (const std::uint64_t ticks = Duration::decode(call.returned); ticks != 0)
    arrival.duration_ns = nanoseconds(static_cast<std::int64_t>(ticks));
  arrival.bytes = bytes_of(call);
  return arrival;
}

}  // namespace accel
