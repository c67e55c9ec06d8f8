#include "timing/wait_tally.h"

#include <algorithm>

namespace accel {

void WaitTally::add(std::uint64_t communicator, std::int32_t size, const Arrival& arrival) {
  if (size <= 1) return;
  auto& open = open_[communicator];
  Open& one = open[arrival.sequence];
  one.meeting.merge(Meeting::of(arrival));
  one.arrivals.push_back(arrival);
  if (one.meeting.seen < size) {
    if (open.size() > kMostOpen) open.erase(open.begin());
    return;
  }
  for (const Arrival& came : one.arrivals) {
    if (came.process >= waited_.size()) waited_.resize(came.process + 1);
    waited_[came.process] += waited(came, one.meeting, size);
  }
  open.erase(arrival.sequence);
}

}  // namespace accel
