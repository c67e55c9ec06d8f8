// accelrun inspect: a run that was kept says the same as it said when it ended, and who was slow.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Inspect : public ::testing::Test {
 protected:
  struct Kept {
    std::string directory;
    std::string report;  ///< as it was printed
    Outcome outcome;
  };
  Kept keep(Mpi mpi, const std::string& program, int ranks = 4,
            std::map<std::string, std::string> variables = {}) {
    Kept kept;
    kept.outcome = run(scratch_, {mpi, Way::Launcher, ranks, program, std::move(variables), "--keep"});
    const std::string& text = kept.outcome.report;
    const std::string words = "[accel] records kept in ";
    const auto at = text.rfind(words);
    EXPECT_NE(at, std::string::npos) << kept.outcome;
    if (at == std::string::npos) return kept;
    kept.directory = text.substr(at + words.size(), text.find('\n', at) - at - words.size());
    const auto begin = text.rfind("[accel] rank ", at);
    if (begin != std::string::npos) kept.report = text.substr(begin, at - begin);
    return kept;
  }
  static Outcome inspect(const std::string& words) {
    return run_shell(build_directory() + "/accelrun inspect " + words);
  }
  static std::string report_in(const std::string& text) {
    const auto begin = text.find("[accel] rank ");
    return begin != std::string::npos ? text.substr(begin) : "";
  }
  Scratch scratch_;
};

TEST_F(Inspect, TheReportIsMadeAgainFromTheRecords) {
  for (const char* fault : {"count", "op", "datatype", "root", "kind", "order", "gatherv", "alltoallv",
                            "exit0", "finalize", "killed", "segv", "cycle"}) {
    SCOPED_TRACE(fault);
    const Kept kept = keep(Mpi::OpenMpi, std::string("faults ") + fault);
    ASSERT_FALSE(kept.report.empty()) << kept.outcome;
    EXPECT_EQ(report_in(inspect(kept.directory).output), kept.report);
  }
  const Kept late = keep(Mpi::Mpich, "faults late", 4, {{"ACCEL_TIMEOUT", "1"}, {"ACCEL_WARN_AFTER", "0.3"}});
  EXPECT_NE(late.report.find("accel.TimeoutError"), std::string::npos);
  EXPECT_EQ(report_in(inspect(late.directory).output), late.report);
}

TEST_F(Inspect, InEachLanguageAndForNccl) {
  for (const char* program : {"misstep count", "misstep_f late", "misstep_f leaves"}) {
    SCOPED_TRACE(program);
    const Kept kept = keep(Mpi::OpenMpi, program, 4, {{"ACCEL_TIMEOUT", "2"}});
    ASSERT_FALSE(kept.report.empty()) << kept.outcome;
    EXPECT_EQ(report_in(inspect(kept.directory).output), kept.report);
  }
  const Kept python =
      keep(Mpi::OpenMpi, "/usr/bin/python3 " + source_directory() + "/tests/programs/misstep.py count");
  EXPECT_NE(python.report.find("misstep.py\", line "), std::string::npos);
  // The others may have gone on from the call while the interpreter was asked: what their records hold then.
  const auto without_others = [](const std::string& report) {
    return report.substr(0, report.find("\nTraceback of process"));
  };
  EXPECT_EQ(without_others(report_in(inspect(python.directory).output)), without_others(python.report));
  for (const char* fault : {"count", "exit0", "oom"}) {
    SCOPED_TRACE(fault);
    const Kept nccl = keep(Mpi::Nccl, std::string("faults ") + fault, 4,
                           {{"ACCEL_STANDIN_NCCL_MISMATCH", "hang"}, {"ACCEL_STANDIN_GPU_MEMORY", "64M"}});
    ASSERT_FALSE(nccl.report.empty()) << nccl.outcome;
    EXPECT_EQ(report_in(inspect(nccl.directory).output), nccl.report);
  }
}

/// Without the moment of the verdict, as after a power failure: what the records alone support.
TEST_F(Inspect, WithoutAVerdictTheRecordsAreJudgedAsTheyStand) {
  const Kept kept = keep(Mpi::OpenMpi, "faults count");
  for (const char* file : {"verdict.json", "verdict.moment", "manifest.json"})
    fs::remove(kept.directory + "/" + file);
  const Outcome outcome = inspect(kept.directory);
  EXPECT_NE(outcome.output.find("collective mismatch (judged from the records)"), std::string::npos)
      << outcome;
  EXPECT_NE(outcome.output.find("  - Process 1: float64[512], sum         <- differs\n"), std::string::npos)
      << outcome;
}

TEST_F(Inspect, ASlowRankIsNamedWithItsCost) {
  const Kept kept = keep(Mpi::OpenMpi, "steps 200 slow=2:3000", 3);
  const json result = json::parse(inspect(kept.directory + " --json").output);
  ASSERT_EQ(result["stragglers"].size(), 1u) << result.dump(2);
  const json& slow = result["stragglers"][0];
  EXPECT_EQ(slow["rank"], 2);
  EXPECT_GE(slow["last"].get<int>(), 190);
  EXPECT_EQ(slow["of"], 201) << "with MPI_Finalize";
  EXPECT_GE(slow["median_late_ns"].get<long>(), 2'500'000);
  EXPECT_GE(result["ranks"][0]["waited_ns"].get<long>(), 500'000'000);
  EXPECT_LT(result["ranks"][2]["waited_ns"].get<long>(), result["ranks"][0]["waited_ns"].get<long>() / 4);
  const Outcome text = inspect(kept.directory);
  EXPECT_NE(text.output.find("Slow: rank 2 arrives last in "), std::string::npos) << text;
}

TEST_F(Inspect, WhoHoldsMoreMemoryThanTheOthersIsNamed) {
  const Kept even = keep(Mpi::Nccl, "trainer --batch 20", 3);
  EXPECT_EQ(inspect(even.directory).output.find("Uneven:"), std::string::npos);
  const Kept uneven = keep(Mpi::Nccl, "trainer --batch 40 --oom-rank 1", 3);
  EXPECT_NE(inspect(uneven.directory)
                .output.find(
                    "Uneven: rank 1 has held up to 41.00 MiB of GPU memory, a rank in the middle 1.00 MiB ("),
            std::string::npos)
      << inspect(uneven.directory);
  const json result = json::parse(inspect(uneven.directory + " --json").output);
  EXPECT_NE(result["uneven_memory"].get<std::string>().find("rank 1 "), std::string::npos);
}

TEST_F(Inspect, NobodyIsCalledSlowWhereNobodyIs) {
  const Kept kept = keep(Mpi::OpenMpi, "steps 10", 3);
  EXPECT_EQ(inspect(kept.directory).output.find("Slow:"), std::string::npos);
}

TEST_F(Inspect, FiguresAddUpAndFiltersFilter) {
  const Kept kept = keep(Mpi::Mpich, "steps 100", 3);
  const json all = json::parse(inspect(kept.directory + " --json").output);
  EXPECT_EQ(all["ranks"].size(), 3u);
  EXPECT_EQ(all["living"], 0);
  for (const json& rank : all["ranks"]) {
    EXPECT_EQ(rank["collectives"], 101);
    EXPECT_EQ(rank["bytes"], 800);
    EXPECT_EQ(rank["overwritten"], 0);
  }
  const json barrier = json::parse(inspect(kept.directory + " --json --function Allred --ranks 0,2").output);
  ASSERT_EQ(barrier["collectives"].size(), 1u);
  EXPECT_EQ(barrier["collectives"][0]["function"], "MPI_Allreduce");
  EXPECT_EQ(barrier["collectives"][0]["times"], 100);
  EXPECT_EQ(barrier["ranks"][1]["collectives"], 0) << "rank 1 is not wanted";
  EXPECT_EQ(barrier["ranks"][2]["collectives"], 100);
  const std::string calls = inspect(kept.directory + " --calls --ranks 1 --function Allreduce").output;
  EXPECT_EQ(std::count(calls.begin(), calls.end(), '\n'), 100) << calls;
  EXPECT_EQ(calls.find("[rank 0"), std::string::npos);
}

/// Chrome's trace event format, as its viewers require it: the events that they know, with their members;
/// slices of a track one after another or one within another; flows with a beginning and an end.
void expect_valid_trace(const json& trace) {
  std::map<std::pair<long, long>, std::vector<std::array<double, 2>>> slices;
  std::map<std::string, std::map<std::string, std::vector<double>>> flows;
  ASSERT_TRUE(trace["traceEvents"].is_array());
  for (const json& event : trace["traceEvents"]) {
    const auto phase = event["ph"].get<std::string>();
    ASSERT_TRUE(event["name"].is_string()) << event;
    const double at = event["ts"].get<double>();
    const std::pair<long, long> track{event["pid"].get<long>(), event["tid"].get<long>()};
    ASSERT_GT(track.first, 0) << "0 is the idle process to Perfetto";
    if (phase == "X") {
      ASSERT_GE(event["dur"].get<double>(), 0) << event;
      slices[track].push_back({at, -(at + event["dur"].get<double>())});
    } else if (phase == "s" || phase == "t" || phase == "f") {
      flows[event["id"].get<std::string>()][phase].push_back(at);
      EXPECT_EQ(event["bp"], "e");
    } else if (phase == "C") {
      ASSERT_TRUE(event["args"]["bytes"].is_number()) << event;
    } else {
      ASSERT_NE(std::string("MiBE").find(phase), std::string::npos) << event;
    }
  }
  for (auto& [track, all] : slices) {
    std::sort(all.begin(), all.end());
    std::vector<double> open;
    for (const auto& [begin, negative_end] : all) {
      constexpr double kRounding = 0.002;
      while (!open.empty() && open.back() <= begin + kRounding) open.pop_back();
      if (!open.empty()) {
        ASSERT_LE(-negative_end, open.back() + kRounding) << "neither within nor after";
      }
      open.push_back(-negative_end);
    }
  }
  for (auto& [id, phases] : flows) {
    ASSERT_EQ(phases["s"].size(), 1u) << id;
    ASSERT_EQ(phases["f"].size(), 1u) << id;
    for (const double step : phases["t"]) {
      EXPECT_LE(phases["s"][0], step);
      EXPECT_LE(step, phases["f"][0]);
    }
  }
}

std::vector<json> named(const json& trace, const std::string& name, const std::string& phase = "X") {
  std::vector<json> events;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == name && event["ph"] == phase) events.push_back(event);
  }
  return events;
}

TEST_F(Inspect, ATraceHoldsWhatTheFiguresCount) {
  const Kept kept = keep(Mpi::OpenMpi, "steps 100 slow=1:1000", 3);
  const std::string file = scratch_.path() + "/trace.json";
  ASSERT_EQ(inspect(kept.directory + " --trace " + file).status, 0);
  const json trace = json::parse(std::ifstream(file));
  expect_valid_trace(trace);
  EXPECT_EQ(named(trace, "MPI_Allreduce").size(), 300u);
  EXPECT_EQ(named(trace, "MPI_Allreduce", "s").size(), 100u);
  EXPECT_EQ(named(trace, "MPI_Allreduce", "t").size(), 100u);
  EXPECT_EQ(named(trace, "MPI_Allreduce", "f").size(), 100u);
  const json figures = json::parse(inspect(kept.directory + " --json").output);
  std::map<long, double> waited;
  for (const json& wait : named(trace, "waits")) {
    waited[wait["pid"].get<long>() - 1] += wait["dur"].get<double>();
    EXPECT_TRUE(wait["args"]["last"].get<std::string>().starts_with("rank ")) << wait;
  }
  for (const long rank : {0, 2})
    EXPECT_NEAR(waited[rank], figures["ranks"][rank]["waited_ns"].get<double>() / 1e3, waited[rank] / 20);
  EXPECT_GT(waited[0], 5 * waited[1]);
  ASSERT_EQ(inspect(kept.directory + " --ranks 2 --last 10 --trace " + file).status, 0);
  const json part = json::parse(std::ifstream(file));
  EXPECT_EQ(named(part, "MPI_Allreduce").size() + named(part, "MPI_Finalize").size(), 10u);
  EXPECT_EQ(named(part, "process_name", "M").size(), 1u);
  const Outcome nowhere = inspect(kept.directory + " --trace /no/such/place");
  EXPECT_EQ(nowhere.status, 64) << nowhere;
  EXPECT_EQ(nowhere.output, "accelrun: cannot write /no/such/place: No such file or directory\n");
}

TEST_F(Inspect, ATraceHoldsStreamsMemoryAndTheVerdict) {
  const Kept healthy = keep(Mpi::Nccl, "trainer --batch 8 --steps 400");
  const std::string file = scratch_.path() + "/trace.json";
  ASSERT_EQ(inspect(healthy.directory + " --trace " + file).status, 0);
  const json trace = json::parse(std::ifstream(file));
  expect_valid_trace(trace);
  EXPECT_EQ(named(trace, "ncclAllReduce").size(), 1600u);
  std::map<std::string, int> tracks;
  for (const json& event : named(trace, "thread_name", "M"))
    ++tracks[event["args"]["name"].get<std::string>()];
  EXPECT_EQ(tracks["stream 0"] + tracks["stream 1"], 4) << json(tracks);
  std::map<long, double> most;
  for (const json& event : named(trace, "GPU memory", "C"))
    most[event["pid"].get<long>()] =
        std::max(most[event["pid"].get<long>()], event["args"]["bytes"].get<double>());
  ASSERT_EQ(most.size(), 4u);
  for (const auto& [rank, bytes] : most) {
    EXPECT_GE(bytes, 8 << 20) << rank;
    EXPECT_LE(bytes, 64 << 20) << rank;
  }
  const Kept faulty = keep(Mpi::OpenMpi, "faults count");
  ASSERT_EQ(inspect(faulty.directory + " --trace " + file).status, 0);
  const json with_verdict = json::parse(std::ifstream(file));
  expect_valid_trace(with_verdict);
  std::vector<std::string> reports;
  for (const json& event : with_verdict["traceEvents"]) {
    if (event["ph"] == "i" && event["s"] == "g")
      reports.push_back(event["args"]["report"].get<std::string>());
  }
  EXPECT_EQ(reports, std::vector{faulty.report});
}

/// The pickles of a directory as Python reads them, by rank.
json read_dumps(const std::string& directory, const Scratch& scratch) {
  const std::string file = scratch.path() + "/dumps.json";
  const Outcome python = run_shell("/usr/bin/python3 " + source_directory() + "/tests/programs/unpickle.py " +
                                   directory + " " + file);
  EXPECT_EQ(python.status, 0) << python;
  return json::parse(std::ifstream(file));
}

TEST_F(Inspect, AFlightRecorderDumpSaysWhatWasCalled) {
  const std::string directory = scratch_.path() + "/dumps";
  const Kept faulty = keep(Mpi::OpenMpi, "faults count");
  ASSERT_EQ(inspect(faulty.directory + " --flight-recorder " + directory).output, "");
  const json mpi = read_dumps(directory, scratch_);
  ASSERT_EQ(mpi.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const json& dump = mpi["rank_" + std::to_string(rank)];
    EXPECT_EQ(dump["version"], "2.4");
    ASSERT_EQ(dump["pg_config"].size(), 1u) << dump.dump(2);
    const std::string group = dump["pg_config"].begin().key();
    EXPECT_EQ(dump["pg_config"][group]["ranks"], "[0, 1, 2, 3]");
    // Whom the mismatch lets go on has come to MPI_Finalize since.
    std::size_t at = dump["entries"].size() - 1;
    while (at > 1 && dump["entries"][at]["profiling_name"] != "nccl:all_reduce") --at;
    const json& last = dump["entries"][at];
    EXPECT_EQ(last["profiling_name"], "nccl:all_reduce");
    EXPECT_EQ(last["process_group"], json::array({group, "MPI"}));
    EXPECT_EQ(last["collective_seq_id"], 2);
    EXPECT_EQ(dump["pg_status"][group]["last_enqueued_collective"], dump["entries"].size());
    const json sizes = json::array({json::array({rank == 1 ? 512 : 1024})});
    EXPECT_EQ(last["input_sizes"], sizes);
    EXPECT_EQ(last["output_sizes"], sizes);
    EXPECT_EQ(last["input_dtypes"], json::array({"Double"}));
    const json& before = dump["entries"][at - 1];
    EXPECT_EQ(before["state"], "completed") << before.dump(2);
    bool found = false;
    for (const json& frame : last["frames"])
      found = found || (frame["name"] == "reduce_gradients" &&
                        frame["filename"].get<std::string>().ends_with("faults.c") && frame["line"] > 0);
    EXPECT_TRUE(found) << last.dump(2);
  }

  const Kept healthy = keep(Mpi::Nccl, "ring", 2);
  fs::remove_all(directory);
  ASSERT_EQ(inspect(healthy.directory + " --flight-recorder " + directory).status, 0);
  const json nccl = read_dumps(directory, scratch_);
  std::map<std::string, json> first;  // of its name
  for (const json& entry : nccl["rank_1"]["entries"]) first.try_emplace(entry["profiling_name"], entry);
  const auto sizes = [&](const char* name) {
    return std::pair(first[name]["input_sizes"].dump(), first[name]["output_sizes"].dump());
  };
  EXPECT_EQ(sizes("nccl:all_reduce"), std::pair(std::string("[[1024]]"), std::string("[[1024]]")));
  EXPECT_EQ(sizes("nccl:_all_gather_base"), std::pair(std::string("[[1024]]"), std::string("[[2048]]")));
  EXPECT_EQ(sizes("nccl:_reduce_scatter_base"), std::pair(std::string("[[2048]]"), std::string("[[1024]]")));
  EXPECT_EQ(sizes("nccl:send 1->0"), std::pair(std::string("[[1024]]"), std::string("[[1024]]")));
  EXPECT_EQ(first["nccl:all_reduce"]["process_group"][1], "NCCL");
  EXPECT_EQ(first["nccl:recv 1<-0"]["p2p_seq_id"], 1);
  EXPECT_EQ(first["nccl:recv 1<-0"]["is_p2p"], true);
  EXPECT_EQ(first["nccl:all_reduce"]["input_dtypes"], json::array({"Float"}));

  const Outcome nowhere = inspect(faulty.directory + " --flight-recorder /proc/none");
  EXPECT_EQ(nowhere.status, 64) << nowhere;
  EXPECT_TRUE(nowhere.output.starts_with("accelrun: cannot make /proc/none: ")) << nowhere;
}

/// What a browser makes of a page: the outcome of a script that is put at its end.
json in_browser(const std::string& page, const std::string& script) {
  const std::string changed = page + ".html";
  std::ofstream(changed)
      << std::ifstream(page).rdbuf() << "<pre id=outcome></pre><script>\n"
      << "const key = name => dispatchEvent(new KeyboardEvent('keydown', {key: name}));\n"
      << "const pixels = (id, name) => { const canvas = element(id), want = d3.rgb(css(name));\n"
      << "  const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;\n"
      << "  let n = 0; for (let i = 0; i < all.length; i += 4)\n"
      << "    n += all[i] === want.r && all[i + 1] === want.g && all[i + 2] === want.b;\n"
      << "  return n; };\n"
      << "const draw = () => { clamp(); drawOverview(); drawTimeline(); drawMemory(); };\n"
      << "const outcome = {};\n"
      << script << "\nelement('outcome').textContent = JSON.stringify(outcome);</script>";
  const Outcome browser = run_shell(
      "chromium-headless-shell --no-sandbox --disable-gpu --enable-logging=stderr --window-size=1200,1500 "
      "--dump-dom file://" +
      changed);
  EXPECT_EQ(browser.output.find("Uncaught"), std::string::npos)
      << "an error in the page's script: " << browser;
  const std::string mark = "<pre id=\"outcome\">";
  const auto at = browser.output.find(mark);
  EXPECT_NE(at, std::string::npos) << browser;
  if (at == std::string::npos) return json::object();
  const auto begin = at + mark.size();
  std::string text = browser.output.substr(begin, browser.output.find("</pre>", begin) - begin);
  for (const auto& [name, character] :
       {std::pair("&lt;", "<"), std::pair("&gt;", ">"), std::pair("&amp;", "&")}) {
    for (std::size_t i = 0; (i = text.find(name, i)) != std::string::npos; ++i)
      text.replace(i, std::strlen(name), character);
  }
  return json::parse(text, nullptr, false);
}

TEST_F(Inspect, APageShowsWhoWaits) {
  const Kept kept = keep(Mpi::OpenMpi, "steps 200 slow=2:3000", 3);
  const std::string page = scratch_.path() + "/page";
  ASSERT_EQ(inspect(kept.directory + " --html " + page).status, 0);
  const json seen = in_browser(page, R"(
    outcome.state = element("state").textContent;
    outcome.slow = element("slow").textContent;
    outcome.rows = document.querySelectorAll("#ranks tbody tr").length;
    outcome.function = document.querySelector("#kinds tbody td").textContent;
    draw();
    outcome.waits = pixels("timeline", "--wait") / (element("timeline").width * element("timeline").height);
    outcome.unfinished = pixels("timeline", "--bad");
    outcome.heat = ranks.map((r, i) => d3.mean(heat.slice(i * parts, (i + 1) * parts)) / 255);
    for (let i = 0; i < 12; ++i) key("+");
    draw();
    outcome.zoomed = (view.to - view.from) / span;
    key("ArrowDown"); key("n"); key("n");
    outcome.chosen = element("chosen").textContent;
    key("0"); clamp();
    outcome.whole = (view.to - view.from) / span;
    outcome.light = getComputedStyle(document.body).backgroundColor;
    key("t"); draw();
    outcome.dark = getComputedStyle(document.body).backgroundColor;
    outcome.waits_in_the_dark = pixels("timeline", "--wait") / (element("timeline").width * element("timeline").height);)");
  EXPECT_EQ(seen["state"], "over, exit status 0");
  EXPECT_NE(seen["slow"].dump().find("rank 2 arrives last in "), std::string::npos) << seen;
  EXPECT_EQ(seen["rows"], 3);
  EXPECT_EQ(seen["function"], "MPI_Allreduce");
  EXPECT_GT(seen["waits"].get<double>(), 0.4)
      << "of the picture: two of three ranks wait nearly all the time";
  EXPECT_NEAR(seen["waits_in_the_dark"].get<double>(), seen["waits"].get<double>(), 0.05);
  EXPECT_EQ(seen["unfinished"], 0);
  EXPECT_GT(seen["heat"][0].get<double>(), 0.7);
  EXPECT_LT(seen["heat"][2].get<double>(), 0.2);
  EXPECT_LT(seen["zoomed"].get<double>(), 0.01);
  EXPECT_EQ(seen["whole"], 1.0);
  EXPECT_NE(seen["chosen"].dump().find("rank 1  MPI_Allreduce #"), std::string::npos) << seen;
  EXPECT_NE(seen["chosen"].dump().find(" for rank 2"), std::string::npos) << seen;
  EXPECT_EQ(seen["light"], "rgb(255, 255, 255)");
  EXPECT_EQ(seen["dark"], "rgb(13, 17, 23)");
  std::stringstream text;
  text << std::ifstream(page).rdbuf();
  for (const char* way_out : {"<link", "src=", "@import", "url("})
    EXPECT_EQ(text.str().substr(0, text.str().find("// https://d3js.org")).find(way_out), std::string::npos)
        << "the page needs nothing else";
}

TEST_F(Inspect, APageShowsTheVerdictAndMemory) {
  const Kept kept = keep(Mpi::Nccl, "faults count \"</script><b>\"", 4,
                         {{"ACCEL_STANDIN_NCCL_MISMATCH", "hang"}, {"ACCEL_STANDIN_GPU_MEMORY", "64M"}});
  const std::string page = scratch_.path() + "/page";
  ASSERT_EQ(inspect(kept.directory + " --html " + page).status, 0);
  const json seen = in_browser(page, R"(
    outcome.verdict = document.querySelector("#verdict pre").textContent;
    outcome.command = document.querySelector("#facts").textContent;
    outcome.tree = document.querySelector("#tree pre").textContent;
    outcome.chosen = element("chosen").textContent;
    draw();
    outcome.memory = pixels("peaks", "--call");)");
  EXPECT_EQ(seen["verdict"], kept.report);
  EXPECT_NE(seen["command"].dump().find("</script><b>"), std::string::npos) << seen;
  EXPECT_NE(seen["tree"].dump().find("[0-3] main"), std::string::npos) << seen;
  EXPECT_NE(seen["chosen"].dump().find("rank 1 on "), std::string::npos)
      << "whom the verdict is about " << seen;
  EXPECT_GT(seen["memory"].get<int>(), 1000);
}

/// The samples of an OpenMetrics text: by name and labels.
std::map<std::string, double> samples_in(const std::string& path) {
  std::map<std::string, double> samples;
  std::ifstream stream(path);
  std::set<std::string> types;
  std::string last;
  for (std::string line; std::getline(stream, line); last = line) {
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(types.insert(line).second) << "a family's samples stand together: " << line;
    }
    if (line.starts_with("#")) continue;
    const auto space = line.rfind(' ');
    std::string name = line.substr(0, space);
    name = std::regex_replace(name, std::regex("run=\"[^\"]*\",|,pid=\"[0-9]+\"|,program=\"[^\"]*\""), "");
    EXPECT_TRUE(samples.emplace(name, std::stod(line.substr(space + 1))).second) << line;
  }
  EXPECT_EQ(last, "# EOF");
  return samples;
}

class Metrics : public Inspect, public ::testing::WithParamInterface<Way> {
 protected:
  /// Once the job is over.
  std::map<std::string, double> of(Mpi mpi, const std::string& program, int ranks = 4,
                                   std::map<std::string, std::string> variables = {}) {
    const std::string file = scratch_.path() + "/metrics.prom";
    variables["ACCEL_METRICS"] = file;
    outcome_ = run(scratch_, {mpi, GetParam(), ranks, program, std::move(variables), {}});
    EXPECT_TRUE(scratch_.path().empty() || !fs::exists(file + ".new"));
    return samples_in(file);
  }
  Outcome outcome_;
};
INSTANTIATE_TEST_SUITE_P(Both, Metrics, ::testing::Values(Way::Launcher, Way::Bare),
                         [](const auto& info) { return name_of(info.param); });

/// Without accelrun a job that is ended may be gone before its last second is written.
using MetricsOfAccelrun = Metrics;
INSTANTIATE_TEST_SUITE_P(Launcher, MetricsOfAccelrun, ::testing::Values(Way::Launcher));

TEST_P(Metrics, CountWhatTheRanksDo) {
  auto samples = of(Mpi::OpenMpi, "steps 500 slow=1:2000", 3);
  EXPECT_EQ(outcome_.status, 0) << outcome_;
  for (const char* rank : {"0", "1", "2"}) {
    const std::string labels = std::string("{rank=\"") + rank + "\"";
    EXPECT_EQ(samples["accel_collectives_total" + labels + ",function=\"MPI_Allreduce\"}"], 500)
        << json(samples);
    EXPECT_EQ(samples["accel_collective_bytes_total" + labels + "}"], 4000);
    EXPECT_EQ(samples["accel_overwritten_records_total" + labels + "}"], 0);
  }
  EXPECT_GT(samples["accel_wait_seconds_total{rank=\"0\"}"], 0.8);
  EXPECT_LT(samples["accel_wait_seconds_total{rank=\"1\"}"], 0.4);
  EXPECT_FALSE(samples.contains("accel_gpu_memory_bytes{rank=\"0\",device=\"0\"}"));
}

TEST_P(MetricsOfAccelrun, CountMemoryAndVerdicts) {
  auto samples = of(Mpi::Nccl, "faults oom", 4, {{"ACCEL_STANDIN_GPU_MEMORY", "64M"}});
  EXPECT_EQ(outcome_.status, 83) << outcome_;
  EXPECT_EQ(samples["accel_verdict{kind=\"out of memory\"}"], 1) << json(samples);
  double failures = 0;
  for (const auto& [name, value] : samples) {
    if (name.starts_with("accel_gpu_allocation_failures_total")) failures += value;
  }
  EXPECT_GE(failures, 1) << json(samples);
  EXPECT_EQ(samples["accel_process{rank=\"1\",gpu=\"stand-in GPU\"}"], 0) << json(samples);
}

TEST_P(Metrics, AFileThatCannotBeWrittenIsSaidOnce) {
  const Outcome outcome = run(
      scratch_,
      {Mpi::OpenMpi, GetParam(), 2, "steps 300 slow=0:10000", {{"ACCEL_METRICS", "/no/such/place/m"}}, {}});
  EXPECT_EQ(outcome.status, 0) << outcome;
  const std::string line = "WARNING: metrics: cannot write /no/such/place/m: No such file or directory\n";
  const auto at = outcome.report.find(line);
  EXPECT_NE(at, std::string::npos) << outcome;
  if (GetParam() == Way::Launcher) {
    EXPECT_EQ(outcome.report.find(line, at + 1), std::string::npos) << outcome;
  }
}

/// What can be read is read, the rest is named.
TEST_F(Inspect, DamagedFilesAreNamed) {
  const Kept kept = keep(Mpi::OpenMpi, "steps 100", 4);
  std::vector<fs::path> records;
  for (const auto& entry : fs::directory_iterator(kept.directory)) {
    if (entry.path().extension() == ".record") records.push_back(entry.path());
  }
  std::sort(records.begin(), records.end());
  ASSERT_EQ(records.size(), 4u);
  fs::resize_file(records[0], 100'000);
  {  // another version
    std::fstream file(records[1], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(8);
    file.put(99);
  }
  std::ofstream(records[2], std::ios::trunc) << "nothing of ours";
  const Outcome outcome = inspect(kept.directory);
  EXPECT_EQ(outcome.status, 0) << outcome;
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(outcome.output.find(records[static_cast<std::size_t>(i)].filename().string()),
              std::string::npos)
        << outcome;
  EXPECT_NE(outcome.output.find("MPI_Allreduce"), std::string::npos) << outcome;
  EXPECT_EQ(inspect("/no/such/run").status, 64);
}

TEST_F(Inspect, RunsAreListedAndFollowed) {
  const Kept kept = keep(Mpi::OpenMpi, "steps 10", 2);
  const Outcome list =
      run_shell("ACCEL_RUN_DIR=" + scratch_.path() + " " + build_directory() + "/accelrun list");
  EXPECT_NE(list.output.find(fs::path(kept.directory).filename().string() +
                             "  0 of 2 processes live  steps  no verdict"),
            std::string::npos)
      << list;
  fs::remove_all(kept.directory);
  // A job that goes on, by the process id of its launcher.
  const Outcome followed =
      run_shell("ACCEL_RUN_DIR=" + scratch_.path() + " " + build_directory() + "/accelrun " +
                launcher(Mpi::OpenMpi, 2) + " " + program(Mpi::OpenMpi, "steps") +
                " 40 slow=0:50000 & sleep 1; ACCEL_RUN_DIR=" + scratch_.path() + " " + build_directory() +
                "/accelrun inspect $! --follow --ranks 1; wait");
  const std::string& text = followed.output;
  EXPECT_EQ(followed.status, 0) << followed;
  EXPECT_NE(text.find("[rank 1/2]"), std::string::npos) << followed;
  EXPECT_NE(text.find("MPI_Allreduce #40 "), std::string::npos) << followed;
}

}  // namespace
}  // namespace accel::testing
