#include "launcher/inspect/figures.h"

#include <algorithm>
#include <map>

#include "report/shape.h"

namespace accel {
namespace {

std::vector<Figures::Communicator> communicators_of(std::vector<Collectives::Rank>& ranks,
                                                    const std::string& communicator) {
  std::map<std::uint64_t, Figures::Communicator> all;
  for (const Collectives::Rank& rank : ranks) {
    for (const CommunicatorEvidence& one : rank.process.communicators) {
      if (!communicator_name(one.record.key).starts_with(communicator)) continue;
      Figures::Communicator& figure = all[one.record.key];
      figure.key = one.record.key;
      figure.size = one.record.size;
      figure.flags |= one.record.flags;
      figure.collectives = std::max(figure.collectives, one.record.sequence);
      figure.ranks.push_back(rank.process.world_rank);
    }
  }
  std::vector<Figures::Communicator> result;
  for (auto& [key, figure] : all) {
    if (figure.size == 1 && figure.collectives == 0) continue;  // MPI_COMM_SELF, mostly
    std::sort(figure.ranks.begin(), figure.ranks.end());
    result.push_back(std::move(figure));
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.collectives > b.collectives; });
  return result;
}

/// A wait from `begin` on, into the parts of `span` in which it was.
void spread(std::int64_t wait, std::int64_t begin, std::int64_t span, std::vector<std::int64_t>& parts) {
  if (parts.empty() || wait <= 0) return;
  const double length = static_cast<double>(span) / static_cast<double>(parts.size());
  auto part = static_cast<std::size_t>(static_cast<double>(std::max<std::int64_t>(begin, 0)) / length);
  for (; wait > 0; ++part) {
    const auto end = static_cast<std::int64_t>(static_cast<double>(part + 1) * length);
    const bool is_last = part + 1 >= parts.size();
    const std::int64_t here = is_last ? wait : std::clamp<std::int64_t>(end - begin, 1, wait);
    parts[std::min(part, parts.size() - 1)] += here;
    wait -= here;
    begin += here;
  }
}

}  // namespace

Figures Figures::of(Collectives& collectives, const Selection& selection, std::size_t parts) {
  Figures figures;
  figures.records = collectives.records();
  figures.begin_ns = collectives.begin_ns();
  figures.end_ns = collectives.end_ns();
  figures.realtime_offset_ns = collectives.realtime_offset_ns();
  figures.ranks.resize(collectives.ranks().size());
  const std::int64_t span = std::max<std::int64_t>(figures.end_ns - figures.begin_ns, 1);
  std::vector<std::map<Function, Kind>> shares(Collectives::shares());
  Collectives::in_parallel([&](std::size_t share, std::size_t of) {
    for (std::size_t i = share; i < figures.ranks.size(); i += of) {
      Collectives::Rank& source = collectives.ranks()[i];
      Rank& rank = figures.ranks[i];
      rank.process = source.process;
      rank.unread = source.unread;
      rank.memory = source.reader().memory();
      if (!selection(rank.process)) continue;
      rank.waited_by_time.assign(parts, 0);
      collectives.each(source, [&](const Collectives::Call& call) {
        const Meeting* meeting = collectives.meeting_of(call);
        if (meeting == nullptr) return;
        const Arrival& arrival = call.arrival;
        const std::int32_t size = collectives.size_of_meeting(call);
        const std::int64_t wait = waited(arrival, *meeting, size);
        ++rank.timing.calls;
        rank.timing.bytes += arrival.bytes;
        rank.timing.waited_ns += wait;
        spread(wait, arrival.started_ns - figures.begin_ns, span, rank.waited_by_time);
        Kind& kind = shares[share][arrival.function];
        kind.waited_ns += wait;
        if (wait > kind.longest_ns) {
          kind.longest_ns = wait;
          kind.longest_rank = rank.process.world_rank;
        }
        const std::int64_t cost = meeting->last == arrival.process ? lost(*meeting, size) : 0;
        if (cost <= 0) return;
        ++rank.timing.last;
        rank.timing.lost_ns += cost;
        rank.timing.late_ns.push_back(cost);
      });
    }
  });

  std::map<Function, Kind> kinds;
  std::uint64_t compared = 0;
  for (const auto& [key, all] : collectives.meetings()) {
    for (const Meeting& meeting : all.all) {
      if (meeting.seen == 0) continue;
      Kind& kind = kinds[meeting.function];
      ++kind.collectives;
      kind.bytes += meeting.bytes;
      compared += lost(meeting, all.size) > 0 ? 1 : 0;
    }
  }
  for (const auto& share : shares) {
    for (const auto& [function, one] : share) {
      Kind& kind = kinds[function];
      kind.waited_ns += one.waited_ns;
      if (one.longest_ns <= kind.longest_ns) continue;
      kind.longest_ns = one.longest_ns;
      kind.longest_rank = one.longest_rank;
    }
  }
  for (auto& [function, kind] : kinds) {
    kind.function = function;
    figures.kinds.push_back(kind);
  }
  std::stable_sort(figures.kinds.begin(), figures.kinds.end(),
                   [](const Kind& a, const Kind& b) { return a.waited_ns > b.waited_ns; });
  figures.communicators = communicators_of(collectives.ranks(), selection.communicator);
  std::vector<RankTiming> timings;
  for (Rank& rank : figures.ranks) timings.push_back(rank.timing);
  figures.stragglers = accel::stragglers(timings, compared, span);
  return figures;
}

}  // namespace accel
