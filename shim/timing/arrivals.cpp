#include "timing/arrivals.h"

#include <algorithm>

namespace accel {

Meeting* Meetings::at(std::uint64_t sequence) {
  if (first == 0) first = sequence;
  // No ring is longer; a number from a damaged file may be anything.
  constexpr std::uint64_t kMost = std::uint64_t{1} << 26;
  if (sequence == 0 || sequence + kMost < first + all.size() || sequence > first + kMost) return nullptr;
  if (sequence < first) {
    // Room for more of the same: ranks' rings begin at about the same number.
    const std::uint64_t more = std::min<std::uint64_t>(sequence - 1, all.size());
    const std::uint64_t begin = sequence - more;
    all.insert(all.begin(), first - begin, Meeting{});
    first = begin;
  }
  const std::uint64_t index = sequence - first;
  if (index >= all.size()) all.resize(index + 1);
  return &all[index];
}

Meeting Meeting::of(const Arrival& arrival) {
  Meeting meeting;
  meeting.first_ns = meeting.last_ns = arrival.started_ns;
  if (arrival.rank == arrival.root) meeting.root_ns = arrival.started_ns;
  meeting.bytes = arrival.bytes;
  meeting.last = arrival.process;
  meeting.seen = 1;
  meeting.function = arrival.function;
  return meeting;
}

void Meeting::merge(const Meeting& other) {
  first_ns = std::min(first_ns, other.first_ns);
  if (other.last_ns > last_ns) {
    second_ns = std::max(last_ns, other.second_ns);
    last_ns = other.last_ns;
    last = other.last;
  } else {
    second_ns = std::max(second_ns, other.last_ns);
  }
  root_ns = std::max(root_ns, other.root_ns);
  bytes = std::max(bytes, other.bytes);
  function = other.function;
  seen += other.seen;
}

void Meetings::add(const Arrival& arrival) {
  if (Meeting* const meeting = at(arrival.sequence)) meeting->merge(Meeting::of(arrival));
}

void Meetings::merge(const Meetings& others) {
  size = std::max(size, others.size);
  for (std::size_t i = 0; i < others.all.size(); ++i) {
    if (others.all[i].seen == 0) continue;
    if (Meeting* const meeting = at(others.first + i)) meeting->merge(others.all[i]);
  }
}

const Meeting* Meetings::find(std::uint64_t sequence) const {
  if (first == 0 || sequence < first || sequence - first >= all.size()) return nullptr;
  const Meeting& meeting = all[sequence - first];
  return meeting.seen != 0 ? &meeting : nullptr;
}

std::int64_t waited(const Arrival& arrival, const Meeting& meeting, std::int32_t size) {
  if (meeting.seen != size) return 0;
  std::int64_t until = arrival.started_ns;
  switch (traits(arrival.function).flow) {
    case Flow::Everyone:
      until = meeting.last_ns;
      break;
    case Flow::FromRoot:
      until = meeting.root_ns;
      break;
    case Flow::ToRoot:
      if (arrival.rank == arrival.root) until = meeting.last_ns;
      break;
    default:
      break;
  }
  const std::int64_t time = std::max<std::int64_t>(until - arrival.started_ns, 0);
  return arrival.duration_ns >= 0 ? std::min(time, arrival.duration_ns) : time;
}

std::int64_t lost(const Meeting& meeting, std::int32_t size) {
  const bool all_wait = traits(meeting.function).flow == Flow::Everyone;
  return all_wait && meeting.seen == size && size > 1 ? meeting.last_ns - meeting.second_ns : 0;
}

std::vector<Straggler> stragglers(std::vector<RankTiming>& ranks, std::uint64_t collectives,
                                  std::int64_t span_ns) {
  constexpr std::uint64_t kFew = 20;
  if (collectives < kFew || span_ns <= 0) return {};
  std::int64_t all_lost = 0;
  for (const RankTiming& rank : ranks) all_lost += rank.lost_ns;
  std::vector<Straggler> found;
  for (std::uint32_t process = 0; process < ranks.size(); ++process) {
    RankTiming& rank = ranks[process];
    const bool persistent = rank.late_ns.size() >= kFew / 2 && rank.lost_ns * 2 > all_lost;
    if (!persistent || rank.lost_ns < span_ns / 100) continue;
    const auto middle = rank.late_ns.begin() + static_cast<std::ptrdiff_t>(rank.late_ns.size() / 2);
    std::nth_element(rank.late_ns.begin(), middle, rank.late_ns.end());
    found.push_back({process, rank.last, collectives, *middle, rank.lost_ns, span_ns});
  }
  return found;
}

}  // namespace accel
