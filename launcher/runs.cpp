#include "launcher/runs.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "act/verdict_file.h"
#include "collect/observer.h"
#include "launcher/command_line.h"
#include "launcher/descendants.h"
#include "launcher/failure.h"
#include "record/base_name.h"

namespace accel {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// The run directory whose record a process has mapped: known of any process with the library in it, however
/// it was started. Empty: none.
std::string run_of_process(std::int32_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  const std::string record = "/" + record_name(pid);
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash != std::string::npos && line.ends_with(record))
      return line.substr(slash, line.size() - slash - record.size());
  }
  return {};
}

/// Of a rank, or of a launcher above ranks.
std::string run_below(std::int32_t pid) {
  if (std::string run = run_of_process(pid); !run.empty()) return run;
  for (const pid_t child : descendants(pid)) {
    if (std::string run = run_of_process(child); !run.empty()) return run;
  }
  return {};
}

std::string runs_of_user(const Settings& settings) {
  return fmt::format("{}/accel-{}", settings.run_base, geteuid());
}

/// Newest first.
std::vector<fs::path> all_runs(const Settings& settings) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(runs_of_user(settings), error)) {
    if (entry.is_directory(error)) runs.push_back(entry.path());
  }
  const auto changed = [](const fs::path& path) {
    std::error_code ignored;
    return fs::last_write_time(path, ignored);
  };
  std::sort(runs.begin(), runs.end(),
            [&](const fs::path& a, const fs::path& b) { return changed(a) > changed(b); });
  return runs;
}

}  // namespace

std::string find_run(const std::string& name, const Settings& settings) {
  if (name.empty()) {
    const std::vector<fs::path> runs = all_runs(settings);
    if (runs.size() == 1) return runs.front().string();
    throw Failure(ACCEL_EXIT_USAGE,
                  runs.empty()
                      ? fmt::format("there is no run below {}; accelrun --keep keeps one", settings.run_base)
                      : "there are several runs; accelrun list shows them");
  }
  const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    std::string run = run_below(std::atoi(name.c_str()));
    if (!run.empty()) return run;
    throw Failure(
        ACCEL_EXIT_USAGE,
        fmt::format("process {} has no record: no process of yours, or none that runs with libaccel.so "
                    "and has come to MPI_Init or its first NCCL communicator",
                    name));
  }
  const std::string below = runs_of_user(settings) + "/" + name;
  for (const std::string& path : {name, below}) {
    if (fs::is_directory(path)) return fs::canonical(path).string();
  }
  throw Failure(ACCEL_EXIT_USAGE,
                fmt::format("{} is neither a run's directory, nor a run below {}, nor a process id", name,
                            settings.run_base));
}

int list_main(int argc, char** argv) {
  CLI::App app("Runs that go on, or were kept: their records lie below the run directory.", "accelrun list");
  bool as_json = false;
  std::string base;
  app.add_flag("--json", as_json, "as JSON");
  app.add_option("--run-dir", base, "where to look")->type_name("DIR");
  if (int status = 0; !parse(app, argc, argv, status)) return status;
  std::vector<std::string> complaints;
  Settings settings = Settings::from_environment(complaints);
  if (!base.empty()) settings.run_base = base;
  json runs = json::array();
  for (const fs::path& path : all_runs(settings)) {
    auto run = RunDirectory::kept(path.string());
    if (!run) continue;
    const Evidence evidence = Observer(*run).observe();
    std::size_t living = 0;
    std::set<std::string> programs;
    for (const ProcessEvidence& process : evidence.processes) {
      living += process.alive ? 1 : 0;
      programs.emplace(base_name(process.program));
    }
    const std::optional<json> verdict = read_verdict(*run);
    runs.push_back({{"run", path.filename().string()},
                    {"path", path.string()},
                    {"processes", evidence.processes.size()},
                    {"living", living},
                    {"programs", programs},
                    {"verdict", verdict ? verdict->value("verdict", json()) : json()}});
  }
  if (as_json) {
    std::cout << json{{"version", 1}, {"runs", runs}}.dump(2) << "\n";
    return 0;
  }
  if (runs.empty()) std::cout << fmt::format("no runs below {}\n", runs_of_user(settings));
  for (const json& run : runs) {
    std::string programs;
    for (const json& program : run["programs"])
      programs += (programs.empty() ? "" : ", ") + program.get<std::string>();
    std::cout << fmt::format("{}  {} of {} processes live  {}  {}\n", run["run"].get<std::string>(),
                             run["living"].get<std::size_t>(), run["processes"].get<std::size_t>(), programs,
                             run["verdict"].is_string() ? run["verdict"].get<std::string>() : "no verdict");
  }
  return 0;
}

}  // namespace accel
