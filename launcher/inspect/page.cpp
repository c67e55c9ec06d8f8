#include "launcher/inspect/page.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "launcher/failure.h"
#include "launcher/inspect/timed_calls.h"
#include "report/shape.h"

#ifndef ACCEL_D3
#define ACCEL_D3 "/usr/share/nodejs/d3/dist/d3.min.js"
#endif

// The page itself and D3 (https://d3js.org), as the build found them.
asm(R"(
  .section .rodata
  .global accel_page, accel_page_end, accel_d3, accel_d3_end
accel_page: .incbin "launcher/inspect/page.html"
accel_page_end:
accel_d3: .incbin ")" ACCEL_D3 R"("
accel_d3_end:
  .previous
)");
extern "C" const char accel_page[], accel_page_end[], accel_d3[], accel_d3_end[];

namespace accel {
namespace {

using nlohmann::json;

std::string base64(const std::vector<std::uint8_t>& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(bytes.size() * 4 / 3 + 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](std::size_t j) { return j < bytes.size() ? std::uint32_t{bytes[j]} : 0U; };
    const std::uint32_t three = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    text += kDigits[three >> 18];
    text += kDigits[three >> 12 & 63];
    text += i + 1 < bytes.size() ? kDigits[three >> 6 & 63] : '=';
    text += i + 2 < bytes.size() ? kDigits[three & 63] : '=';
  }
  return text;
}

/// Numbers for things that come again and again.
class Names {
 public:
  int number_of(const std::string& name) {
    const auto [place, is_new] = numbers_.try_emplace(name, static_cast<int>(numbers_.size()));
    if (is_new) all_.push_back(name);
    return place->second;
  }
  const std::vector<std::string>& all() const { return all_; }

 private:
  std::map<std::string, int> numbers_;
  std::vector<std::string> all_;
};

// To a hundredth of a microsecond: more digits would only make the page larger.
double microseconds(std::int64_t ns) {
  const std::int64_t hundredths = ns / 10;
  return static_cast<double>(hundredths) / 100;
}

}  // namespace

std::size_t page_parts(std::size_t ranks) {
  constexpr std::size_t kCells = 1'200'000;
  return std::clamp<std::size_t>(kCells / std::max<std::size_t>(ranks, 1), 120, 2400);
}

void write_page(const std::string& path, Collectives& collectives, const Selection& selection,
                const Figures& figures, const PageTexts& texts, std::uint64_t most) {
  const std::size_t parts = page_parts(figures.ranks.size());
  json data = {{"run", texts.run},         {"state", texts.state},  {"verdict", texts.verdict},
               {"tree", texts.tree},       {"facts", texts.facts},  {"stragglers", texts.stragglers},
               {"subject", texts.subject}, {"parts", parts},        {"ranks", json::array()},
               {"kinds", json::array()},   {"calls", json::array()}};
  for (const Figures::Kind& kind : figures.kinds) {
    data["kinds"].push_back({{"name", traits(kind.function).name},
                             {"times", kind.collectives},
                             {"bytes", kind.bytes},
                             {"waited_us", microseconds(kind.waited_ns)},
                             {"longest_us", microseconds(kind.longest_ns)},
                             {"longest_rank", kind.longest_rank}});
  }
  Names functions;
  Names communicators;
  std::vector<std::uint8_t> heat;
  std::int64_t end_ns = figures.end_ns;
  bool all_calls = true;
  const std::int64_t span = std::max<std::int64_t>(figures.end_ns - figures.begin_ns, 1);
  for (Collectives::Rank& rank : collectives.ranks()) {
    const Figures::Rank& figure = figures.ranks[rank.index()];
    if (!selection(rank.process)) continue;
    json history = json::array();
    for (const auto& [at_ns, bytes] : rank.reader().memory_history())
      history.push_back({microseconds(at_ns - figures.begin_ns), bytes});
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const auto& [device, memory] : figure.memory) {
      now += memory.total;
      peak += memory.peak;
    }
    data["ranks"].push_back({{"rank", rank.process.world_rank},
                             {"host", rank.process.host},
                             {"pid", rank.process.pid},
                             {"gpu", rank.process.gpu},
                             {"calls", figure.timing.calls},
                             {"waited_us", microseconds(figure.timing.waited_ns)},
                             {"last", figure.timing.last},
                             {"lost_us", microseconds(figure.timing.lost_ns)},
                             {"overwritten", figure.unread},
                             {"memory", now},
                             {"peak", peak},
                             {"history", std::move(history)}});
    for (const std::int64_t waited : figure.waited_by_time) {
      const double share =
          static_cast<double>(waited) * static_cast<double>(parts) / static_cast<double>(span);
      heat.push_back(
          static_cast<std::uint8_t>(std::clamp(share * 255 + (waited > 0 ? 0.999 : 0), 0.0, 255.0)));
    }
    json calls = json::array();
    for (const TimedCall& call : timed_calls(collectives, rank, most, false)) {
      end_ns = std::max(end_ns, call.end_ns);
      const int communicator =
          call.communicator != 0 ? communicators.number_of(communicator_name(call.communicator)) : -1;
      const json values = {microseconds(call.begin_ns - figures.begin_ns),
                           microseconds(call.end_ns - call.begin_ns),
                           microseconds(call.waited_ns),
                           functions.number_of(std::string(traits(call.function).name)),
                           communicator,
                           call.sequence,
                           call.bytes,
                           call.track,
                           call.last_rank,
                           call.returned ? 1 : 0};
      calls.insert(calls.end(), values.begin(), values.end());
    }
    all_calls = all_calls && rank.reader().begun(Ring::Collectives) <= most;
    data["calls"].push_back(std::move(calls));
  }
  data["heat"] = base64(heat);
  data["functions"] = functions.all();
  data["communicators"] = communicators.all();
  data["all_calls"] = all_calls;
  data["heat_us"] = microseconds(span);
  data["span_us"] = microseconds(end_ns - figures.begin_ns);

  // "</script>" in a text must not end the script.
  std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3)
    text.replace(at, 2, "<\\/");
  const std::string_view page(accel_page, static_cast<std::size_t>(accel_page_end - accel_page));
  const std::string_view d3(accel_d3, static_cast<std::size_t>(accel_d3_end - accel_d3));
  constexpr std::string_view kD3 = "/*D3*/";
  constexpr std::string_view kData = "/*DATA*/";
  const std::size_t place = page.find(kD3);
  const std::size_t data_place = page.find(kData);
  std::ofstream stream(path);
  stream << page.substr(0, place) << d3 << page.substr(place + kD3.size(), data_place - place - kD3.size())
         << text << page.substr(data_place + kData.size());
  if (!stream.flush())
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

}  // namespace accel
