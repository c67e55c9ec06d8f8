#include "launcher/inspect/collectives.h"

#include <algorithm>
#include <thread>

#include "report/shape.h"

namespace accel {

std::size_t Collectives::shares() {
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
}

void Collectives::in_parallel(const std::function<void(std::size_t, std::size_t)>& work) {
  const std::size_t all = shares();
  std::vector<std::thread> threads;
  for (std::size_t share = 1; share < all; ++share) threads.emplace_back([&, share] { work(share, all); });
  work(0, all);
  for (std::thread& thread : threads) thread.join();
}

Collectives::Collectives(const Observer& observer, const Evidence& evidence, const Selection& selection)
    : wanted_(static_cast<std::size_t>(Function::Count_)) {
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    const FunctionTraits& what = traits(static_cast<Function>(i));
    wanted_[i] = what.numbered && what.name.find(selection.function) != std::string_view::npos;
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return evidence.processes[a].world_rank < evidence.processes[b].world_rank;
  });
  for (const std::size_t process : order) {
    ranks_.push_back(
        {evidence.processes[process],
         ProcessCalls(observer.shared_reader(process), static_cast<std::uint32_t>(ranks_.size())), 0});
    ranks_.back().calls.update(evidence.processes[process], [&](std::uint64_t key) {
      return communicator_name(key).starts_with(selection.communicator);
    });
    const RecorderHeader& header = ranks_.back().reader().header();
    realtime_offset_ns_ = header.begin_realtime_ns - header.begin.monotonic_ns;
  }

  struct Share {
    std::map<std::uint64_t, Meetings> meetings;
    std::uint64_t records = 0;
    std::int64_t begin_ns = INT64_MAX, end_ns = INT64_MIN;
  };
  std::vector<Share> all(shares());
  in_parallel([&](std::size_t number, std::size_t of) {
    Share& share = all[number];
    for (std::size_t i = number; i < ranks_.size(); i += of) {
      share.records += each(ranks_[i], [&](const Call& call) {
        Meetings& meetings = share.meetings[call.communicator.key];
        meetings.size = call.communicator.size;
        meetings.add(call.arrival);
        share.begin_ns = std::min(share.begin_ns, call.arrival.started_ns);
        share.end_ns = std::max(share.end_ns, call.arrival.started_ns);
      });
    }
  });
  begin_ns_ = INT64_MAX;
  end_ns_ = INT64_MIN;
  for (Share& share : all) {
    if (&share == all.data()) {
      meetings_ = std::move(share.meetings);
    } else {
      for (const auto& [key, one] : share.meetings) meetings_[key].merge(one);
      share.meetings.clear();
    }
    records_ += share.records;
    begin_ns_ = std::min(begin_ns_, share.begin_ns);
    end_ns_ = std::max(end_ns_, share.end_ns);
  }
  if (begin_ns_ > end_ns_) begin_ns_ = end_ns_ = 0;
}

}  // namespace accel
