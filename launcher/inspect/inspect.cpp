#include "launcher/inspect/inspect.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/batch/adjustable.h"
#include "launcher/command_line.h"
#include "launcher/failure.h"
#include "launcher/inspect/figures.h"
#include "launcher/inspect/flight_recorder.h"
#include "launcher/inspect/judged_again.h"
#include "launcher/inspect/page.h"
#include "launcher/inspect/trace.h"
#include "launcher/recorded_run.h"
#include "launcher/runs.h"
#include "launcher/stacks.h"
#include "record/base_name.h"
#include "report/call_log.h"
#include "report/log.h"
#include "report/names.h"
#include "report/rank_set.h"
#include "report/shape.h"
#include "settings/settings.h"

namespace accel {
namespace {

using nlohmann::json;

std::string seconds_text(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 0.001) return fmt::format("{:.0f} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 600) return fmt::format("{:.2f} s", seconds);
  return fmt::format("{:.1f} min", seconds / 60);
}

/// Digits in groups of three.
std::string count_text(std::uint64_t count) {
  std::string text = std::to_string(count);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

/// A table whose columns are as wide as they must be; the first is flush left, the others right.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line = " ";
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - width(row[i]), ' ');
        line += " " + (i == 0 ? row[i] + padding : " " + padding + row[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

 private:
  /// In characters, not bytes.
  static std::size_t width(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }
  std::vector<std::vector<std::string>> rows_;
};

/// Of all ranks together: a trace of a hundred megabytes, which viewers still open.
constexpr std::uint64_t kTracedCalls = 200'000;

/// Of all ranks together on a page: a few megabytes.
constexpr std::uint64_t kDrawnCalls = 60'000;

struct Inspected {
  std::string path;
  json manifest;
  json verdict;
  std::optional<JudgedAgain> again;
  std::vector<std::string> complaints;  ///< about files that cannot be read
  Figures figures;
  std::size_t living = 0;
};

/// "vm [0-3], vm2 [4-7]": who runs where, or with what.
std::string groups(const Figures& figures, const std::function<std::string(const ProcessEvidence&)>& what) {
  std::map<std::string, std::vector<int>> ranks;
  for (const Figures::Rank& rank : figures.ranks) {
    const std::string name = what(rank.process);
    if (!name.empty()) ranks[name].push_back(rank.process.world_rank);
  }
  std::string text;
  for (const auto& [name, all] : ranks) {
    text += (text.empty() ? "" : ", ") + name;
    if (ranks.size() > 1 || all.size() != figures.ranks.size()) text += fmt::format(" [{}]", rank_set(all));
  }
  return text;
}

std::string straggler_text(const Figures& figures, const Straggler& one) {
  const ProcessEvidence& process = figures.ranks[one.process].process;
  // What it computes on, where that is another one than most of the others have.
  std::map<std::string, std::size_t> models;
  for (const Figures::Rank& rank : figures.ranks) ++models[rank.process.gpu];
  const auto usual = std::max_element(models.begin(), models.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string gpu;
  if (!process.gpu.empty() && !usual->first.empty() && process.gpu != usual->first)
    gpu = fmt::format("; its GPU is a {}, most others' a {}", process.gpu, usual->first);
  const double an_hour = static_cast<double>(one.lost_ns) * 3600 / static_cast<double>(one.span_ns);
  return fmt::format(
      "rank {} arrives last in {:.0f}% of {} collectives, median {} after the last but one: {:.1f}% of the "
      "time, {:.0f} s an hour ({}, pid {}{})",
      process.world_rank, 100.0 * static_cast<double>(one.last) / static_cast<double>(one.of),
      count_text(one.of), seconds_text(one.median_late_ns),
      100.0 * static_cast<double>(one.lost_ns) / static_cast<double>(one.span_ns), an_hour, process.host,
      process.pid, gpu);
}

/// Who has held clearly more of the GPUs' memory than the others, and so runs out of it first; empty: nobody.
std::string uneven_memory(const Figures& figures) {
  std::vector<std::pair<std::int64_t, const ProcessEvidence*>> peaks;
  for (const Figures::Rank& rank : figures.ranks) {
    std::int64_t peak = 0;
    for (const auto& [device, one] : rank.memory) peak += one.peak;
    if (peak > 0) peaks.emplace_back(peak, &rank.process);
  }
  if (peaks.size() < 3) return "";
  std::sort(peaks.begin(), peaks.end());
  constexpr std::int64_t kWorthAWord = std::int64_t{16} << 20;
  const std::int64_t usual = peaks[peaks.size() / 2].first;
  const auto& [most, process] = peaks.back();
  if (most - usual < std::max(kWorthAWord, usual / 5)) return "";
  return fmt::format("rank {} has held up to {} of GPU memory, a rank in the middle {} ({}, pid {})",
                     process->world_rank, size_text(most), size_text(usual), process->host, process->pid);
}

std::string state_text(const Inspected& run) {
  if (run.living != 0) return fmt::format("{} of {} processes live", run.living, run.figures.ranks.size());
  std::string text = "over";
  if (run.manifest.contains("status")) text += fmt::format(", exit status {}", run.manifest["status"].dump());
  if (run.verdict.contains("verdict")) {
    text += ", " + run.verdict["verdict"].get<std::string>();
  } else if (run.again) {
    text += fmt::format(", {} (judged from the records)", title(run.again->verdict.kind));
  }
  return text;
}

/// What stands at the top: name and value.
std::vector<std::pair<std::string, std::string>> facts_of(const Inspected& run) {
  const Figures& figures = run.figures;
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) facts.emplace_back(what, value);
  };
  add("directory", run.path);
  if (run.manifest.contains("command"))
    add("command", quoted(run.manifest["command"].get<std::vector<std::string>>()));
  add("program", groups(figures, [](const auto& process) { return process.program; }));
  add("MPI", groups(figures, [](const auto& process) { return process.library; }));
  add("GPU", groups(figures, [](const auto& process) { return process.gpu; }));
  add("NCCL", groups(figures, [](const auto& process) { return process.nccl; }));
  add("ranks", fmt::format("{} on {}", figures.ranks.size(),
                           groups(figures, [](const auto& process) { return process.host; })));
  if (figures.records != 0) {
    add("seen", fmt::format("{} records, {} from {} on", count_text(figures.records),
                            seconds_text(figures.end_ns - figures.begin_ns),
                            local_time(figures.begin_ns + figures.realtime_offset_ns, "%Y-%m-%d %H:%M:%S")));
  }
  for (const std::string& complaint : run.complaints) add("unread", complaint);
  return facts;
}

std::string text_of(const Inspected& run) {
  const Figures& figures = run.figures;
  std::string text = fmt::format("{}: {}\n", base_name(run.path), state_text(run));
  for (const auto& [what, value] : facts_of(run)) text += fmt::format("  {:<10} {}\n", what, value);

  if (!figures.communicators.empty()) {
    constexpr std::size_t kMost = 20;
    Table table({"Communicator", "ranks", "collectives", ""});
    for (std::size_t i = 0; i < std::min(kMost, figures.communicators.size()); ++i) {
      const Figures::Communicator& one = figures.communicators[i];
      table.add({communicator_name(one.key), fmt::format("{} [{}]", one.size, rank_set(one.ranks)),
                 count_text(one.collectives),
                 (one.flags & kCommunicatorWorld) != 0      ? "MPI_COMM_WORLD"
                 : (one.flags & kCommunicatorOnStream) != 0 ? "NCCL"
                                                            : "MPI"});
    }
    text += "\n" + table.text();
    if (figures.communicators.size() > kMost)
      text += fmt::format("  and {} more\n", figures.communicators.size() - kMost);
  }
  if (!figures.kinds.empty()) {
    Table table({"Collective", "times", "data a rank", "ranks waited", "longest"});
    for (const Figures::Kind& kind : figures.kinds) {
      table.add({std::string(traits(kind.function).name), count_text(kind.collectives),
                 kind.bytes != 0 ? size_text(kind.bytes) : "", seconds_text(kind.waited_ns),
                 kind.longest_rank >= 0
                     ? fmt::format("{} [{}]", seconds_text(kind.longest_ns), kind.longest_rank)
                     : ""});
    }
    text += "\n" + table.text();
  }
  // The most patient ones first: who waits least is whom the others wait for.
  std::vector<const Figures::Rank*> ranks;
  for (const Figures::Rank& rank : figures.ranks) ranks.push_back(&rank);
  constexpr std::size_t kMost = 32;
  if (ranks.size() > kMost) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [](const auto* a, const auto* b) { return a->timing.waited_ns < b->timing.waited_ns; });
    ranks.erase(ranks.begin() + kMost / 2, ranks.end() - kMost / 2);
  }
  const double span = static_cast<double>(std::max<std::int64_t>(figures.end_ns - figures.begin_ns, 1));
  Table table({"Rank", "collectives", "waited", "", "last of all", "GPU memory, peak", "failed"});
  for (const Figures::Rank* rank : ranks) {
    std::string memory;
    std::uint64_t failures = 0;
    for (const auto& [device, one] : rank->memory) {
      memory += fmt::format("{}{}: {}", memory.empty() ? "" : ", ", device, size_text(one.peak));
      failures += one.failures;
    }
    table.add({std::to_string(rank->process.world_rank), count_text(rank->timing.calls),
               seconds_text(rank->timing.waited_ns),
               fmt::format("{:.0f}%", 100 * static_cast<double>(rank->timing.waited_ns) / span),
               count_text(rank->timing.last), memory, failures != 0 ? count_text(failures) : ""});
  }
  if (!ranks.empty()) text += "\n" + table.text();
  if (ranks.size() < figures.ranks.size())
    text += fmt::format("  (the {} that waited least and the {} that waited most of {})\n", kMost / 2,
                        kMost / 2, figures.ranks.size());
  std::uint64_t unread = 0;
  for (const Figures::Rank& rank : figures.ranks) unread += rank.unread;
  if (unread != 0)
    text +=
        fmt::format("\n  {} older records were overwritten; ACCEL_RECORDS keeps more\n", count_text(unread));
  for (const Straggler& one : figures.stragglers) text += "\nSlow: " + straggler_text(figures, one) + "\n";
  if (const std::string uneven = uneven_memory(figures); !uneven.empty())
    text += "\nUneven: " + uneven + "\n";
  if (run.again) text += "\n" + run.again->report.text;
  return text;
}

json json_of(const Inspected& run) {
  const Figures& figures = run.figures;
  json result = {{"version", 1},
                 {"path", run.path},
                 {"manifest", run.manifest},
                 {"living", run.living},
                 {"records", figures.records},
                 {"begin_ns", figures.begin_ns + figures.realtime_offset_ns},
                 {"seen_ns", figures.end_ns - figures.begin_ns},
                 {"unreadable", run.complaints},
                 {"communicators", json::array()},
                 {"collectives", json::array()},
                 {"ranks", json::array()},
                 {"stragglers", json::array()},
                 {"uneven_memory", uneven_memory(figures)}};
  if (run.again) result["verdict"] = json::parse(run.again->report.json);
  for (const Figures::Communicator& one : figures.communicators) {
    result["communicators"].push_back({{"key", fmt::format("{:016x}", one.key)},
                                       {"size", one.size},
                                       {"ranks", one.ranks},
                                       {"collectives", one.collectives}});
  }
  for (const Figures::Kind& kind : figures.kinds) {
    result["collectives"].push_back({{"function", traits(kind.function).name},
                                     {"times", kind.collectives},
                                     {"bytes", kind.bytes},
                                     {"waited_ns", kind.waited_ns},
                                     {"longest_wait_ns", kind.longest_ns},
                                     {"longest_wait_rank", kind.longest_rank}});
  }
  for (const Figures::Rank& rank : figures.ranks) {
    json memory = json::array();
    for (const auto& [device, one] : rank.memory) {
      memory.push_back({{"device", device},
                        {"current", one.total},
                        {"peak", one.peak},
                        {"allocations", one.allocations},
                        {"frees", one.frees},
                        {"failures", one.failures}});
    }
    result["ranks"].push_back({{"rank", rank.process.world_rank},
                               {"host", rank.process.host},
                               {"pid", rank.process.pid},
                               {"program", rank.process.program},
                               {"gpu", rank.process.gpu},
                               {"alive", rank.process.alive},
                               {"collectives", rank.timing.calls},
                               {"bytes", rank.timing.bytes},
                               {"waited_ns", rank.timing.waited_ns},
                               {"last", rank.timing.last},
                               {"lost_ns", rank.timing.lost_ns},
                               {"overwritten", rank.unread},
                               {"memory", memory}});
  }
  for (const Straggler& one : figures.stragglers) {
    result["stragglers"].push_back({{"rank", figures.ranks[one.process].process.world_rank},
                                    {"last", one.last},
                                    {"of", one.of},
                                    {"median_late_ns", one.median_late_ns},
                                    {"lost_ns", one.lost_ns},
                                    {"text", straggler_text(figures, one)}});
  }
  return result;
}

TraceTitle title_of(const Inspected& run, const RunDirectory& directory) {
  TraceTitle title;
  title.run = base_name(run.path);
  if (run.manifest.contains("command"))
    title.command = quoted(run.manifest["command"].get<std::vector<std::string>>());
  if (run.again) title.verdict = run.again->report.text;
  const std::optional<Moment> moment = Moment::read(directory.fd());
  title.verdict_ns = moment ? moment->evidence_ns : run.figures.end_ns;
  return title;
}

PageTexts texts_of(const Inspected& run, const RunDirectory& directory) {
  PageTexts texts;
  texts.run = base_name(run.path);
  texts.state = state_text(run);
  texts.facts = facts_of(run);
  if (run.again) {
    texts.verdict = run.again->report.text;
    for (const Party& party : run.again->verdict.parties) {
      if (party.blamed && texts.subject < 0) texts.subject = party.world_rank;
    }
  }
  for (const Straggler& one : run.figures.stragglers)
    texts.stragglers.push_back(straggler_text(run.figures, one));
  texts.tree = stacks_text(directory);
  return texts;
}

/// The calls themselves, as the log has them.
void list_calls(const RunDirectory& run, CallFilter filter, bool follow) {
  Observer observer(run);
  CallLog calls(std::move(filter));
  const auto print = [](const CallLine& line) { std::cout << line.text; };
  for (bool anybody = true;;) {
    const Evidence evidence = observer.observe();
    anybody = std::any_of(evidence.processes.begin(), evidence.processes.end(),
                          [](const ProcessEvidence& process) { return process.alive; });
    const bool everything = !follow || !anybody;
    calls.tell(observer, evidence, everything, print);
    if (everything && !calls.is_behind()) break;
    std::cout.flush();
    constexpr useconds_t kInterval = 100'000;
    if (!everything && !calls.is_behind()) usleep(kInterval);
  }
  if (calls.lost() != 0) std::cout << fmt::format("({} older records were overwritten)\n", calls.lost());
}

}  // namespace

int inspect_main(int argc, char** argv) {
  CLI::App app(
      "What a run did: its ranks, communicators, collectives and memory, who waited for whom, and its "
      "verdict. "
      "Of a job that goes on, or of one that was kept (accelrun --keep).",
      "accelrun inspect");
  std::string name;
  std::string ranks = "all";
  Selection selection;
  bool as_json = false;
  bool calls = false;
  bool follow = false;
  bool full_names = false;
  std::string trace;
  std::string html;
  std::string flight_recorder;
  std::uint64_t last = 0;
  app.add_option(
      "RUN", name,
      "a run's directory or id, or the process id of a rank or of a launcher above it; without it, "
      "the only run there is");
  app.add_option("--ranks", ranks, "only these: main, all or a list such as 0,3-5")->type_name("LIST");
  app.add_option("--function", selection.function, "only functions with this in their name")
      ->type_name("NAME");
  app.add_option("--communicator", selection.communicator, "only communicators that begin so")
      ->type_name("KEY");
  app.add_flag("--calls", calls, "list the calls, in the order in which they were made");
  app.add_flag("--follow", follow, "list the calls of a job that goes on as they are made, until it ends");
  app.add_flag("--json", as_json, "as JSON");
  app.add_option(
         "--trace", trace,
         "write all calls as a trace for ui.perfetto.dev or chrome://tracing: a track a rank and stream")
      ->type_name("FILE");
  app.add_option("--html", html,
                 "write a page with a timeline, who waits when, memory, the verdict and the ranks' stacks")
      ->type_name("FILE");
  app.add_option("--flight-recorder", flight_recorder,
                 "write a dump a rank as PyTorch's flight recorder does, for its analyzer: python -m "
                 "torch.distributed.flight_recorder.fr_trace DIRECTORY")
      ->type_name("DIRECTORY");
  app.add_option(
         "--last", last,
         fmt::format("in the trace and on the page: the latest N collectives of each rank, one by one; by "
                     "default as many as make {} of all ranks in a trace, {} on a page",
                     count_text(kTracedCalls), count_text(kDrawnCalls)))
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_flag("--full-names", full_names, "names of C++ functions with all their template arguments");
  if (int status = 0; !parse(app, argc, argv, status)) return status;
  std::vector<std::string> complaints;
  setenv("ACCEL_LOG_RANKS", ranks.c_str(), 1);
  const Settings settings = Settings::from_environment(complaints);
  if (!accepts("ACCEL_LOG_RANKS", ranks))
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--ranks {} is not valid: expected main, all or a list such as 0,3-5", ranks));
  selection.ranks = settings.log_ranks;
  show_full_names(full_names || settings.full_names);

  Inspected result;
  result.path = find_run(name, settings);
  auto run = RunDirectory::kept(result.path);
  if (!run) throw Failure(ACCEL_EXIT_USAGE, run.error);
  if (calls || follow) {
    CallFilter filter;
    filter.ranks = selection.ranks;
    filter.order = settings.log_order;
    filter.format = as_json ? LogFormat::Json : LogFormat::Text;
    filter.function = selection.function;
    filter.communicator = selection.communicator;
    list_calls(*run, filter, follow);
    if (!follow) return 0;
  }
  result.manifest = read_json(result.path + "/manifest.json");
  result.verdict = read_json(result.path + "/verdict.json");
  if (result.manifest.value("status", 1) != 0 || !result.verdict.empty()) result.again = judge_again(*run);
  if (follow) {
    if (result.again) std::cout << result.again->report.text;
    return 0;
  }
  Observer observer(*run);
  observer.expect_whole_files();
  const Evidence evidence = observer.observe();
  result.complaints = observer.take_complaints();
  if (evidence.processes.empty()) {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("{} holds no record of a process{}", result.path,
                              result.complaints.empty() ? "" : " that can be read: " + result.complaints[0]));
  }
  for (const ProcessEvidence& process : evidence.processes) result.living += process.alive ? 1 : 0;
  Collectives collectives(observer, evidence, selection);
  const std::size_t all_ranks = collectives.ranks().size();
  result.figures = Figures::of(collectives, selection, html.empty() ? 0 : page_parts(all_ranks));
  const auto most_of = [&](std::uint64_t calls) {
    return last != 0 ? last : std::max<std::uint64_t>(calls / all_ranks, 20);
  };
  if (!trace.empty())
    write_trace(trace, collectives, selection, title_of(result, *run), most_of(kTracedCalls));
  if (!html.empty())
    write_page(html, collectives, selection, result.figures, texts_of(result, *run), most_of(kDrawnCalls));
  if (!flight_recorder.empty()) {
    const std::uint64_t most = last != 0 ? last : UINT64_MAX;
    const FlightRecorderDump dump = write_flight_recorder(flight_recorder, collectives, selection, most);
    if (dump.without_equal != 0) {
      std::cout << fmt::format("{} of {} calls left out: a flight recorder has no name for them\n",
                               count_text(dump.without_equal), count_text(dump.entries + dump.without_equal));
    }
  }
  if (!trace.empty() || !html.empty() || !flight_recorder.empty()) return 0;
  if (as_json) {
    std::cout << json_of(result).dump(2, ' ', false, json::error_handler_t::replace) << "\n";
  } else {
    std::cout << text_of(result);
  }
  return 0;
}

}  // namespace accel
