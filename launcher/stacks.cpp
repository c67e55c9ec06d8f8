#include "launcher/stacks.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "act/stack_request.h"
#include "launcher/command_line.h"
#include "launcher/failure.h"
#include "launcher/runs.h"
#include "report/names.h"
#include "report/rank_set.h"
#include "report/stack_tree.h"
#include "report/thread_stacks.h"
#include "settings/settings.h"

namespace accel {
namespace {

using nlohmann::json;

struct Found {
  ProcessEvidence process;
  std::vector<ThreadStack> threads;
};

std::vector<Found> ask(const RunDirectory& run) {
  Observer observer(run);
  const Evidence evidence = observer.observe();
  const bool anybody = std::any_of(evidence.processes.begin(), evidence.processes.end(),
                                   [](const ProcessEvidence& process) { return process.alive; });
  std::uint32_t request = 0;
  if (Board* board = anybody ? run.map_board() : nullptr)
    request = request_stacks(*board, observer, evidence, kLatePatience);
  std::vector<Found> found;
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
    const ProcessEvidence& process = evidence.processes[i];
    found.push_back({process, thread_stacks(observer.reader(i), process, request)});
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.process.world_rank < b.process.world_rank;
  });
  return found;
}

std::vector<std::string> labels_of(const ThreadStack& stack) {
  std::vector<std::string> labels = labels_of(stack.frames);
  if (!stack.call.empty()) labels.push_back(stack.call);
  if (stack.state == 'D') labels.emplace_back("uninterruptible sleep in the kernel");
  if (labels.empty()) labels.emplace_back("??");
  return labels;
}

std::string text_of(const std::vector<Found>& found) {
  std::vector<RankStack> main_threads;
  std::vector<RankStack> others;
  std::vector<int> silent;
  for (const Found& one : found) {
    if (one.threads.empty()) silent.push_back(one.process.world_rank);
    for (const ThreadStack& stack : one.threads) {
      RankStack rank{one.process.world_rank, labels_of(stack)};
      const bool is_main = stack.tid == one.process.pid;
      if (!is_main && !stack.name.empty())
        rank.frames.insert(rank.frames.begin(), fmt::format("thread {}", stack.name));
      (is_main ? main_threads : others).push_back(std::move(rank));
    }
  }
  std::string text = stack_tree(main_threads, others.empty() ? 56 : 28);
  if (!others.empty()) text += "Other threads inside calls:\n" + stack_tree(others, 28);
  if (!silent.empty()) text += fmt::format("[{}] no answer: gone, or stopped\n", rank_set(silent));
  return text;
}

json json_of(const std::vector<Found>& found) {
  json result = {{"version", 1}, {"processes", json::array()}};
  for (const Found& one : found) {
    json process = {{"rank", one.process.world_rank}, {"host", one.process.host},
                    {"pid", one.process.pid},         {"program", one.process.program},
                    {"alive", one.process.alive},     {"threads", json::array()}};
    for (const ThreadStack& stack : one.threads) {
      json thread = {{"tid", stack.tid}, {"traceback", frames_json(stack.frames)}};
      if (!stack.name.empty()) thread["name"] = stack.name;
      if (!stack.call.empty()) thread["call"] = stack.call;
      if (stack.state != 0) thread["state"] = std::string(1, stack.state);
      process["threads"].push_back(std::move(thread));
    }
    result["processes"].push_back(std::move(process));
  }
  return result;
}

}  // namespace

std::string stacks_text(const RunDirectory& run) {
  const std::vector<Found> found = ask(run);
  const bool anything =
      std::any_of(found.begin(), found.end(), [](const Found& one) { return !one.threads.empty(); });
  return anything ? text_of(found) : "";
}

int stacks_main(int argc, char** argv) {
  CLI::App app(
      "Shows where every rank of a job stands, merged to one tree; the odd one out first. The job goes on.",
      "accelrun stacks");
  std::string name;
  bool as_json = false;
  bool full_names = false;
  app.add_option("run", name,
                 "a run's directory or id, or the process id of a rank or of a launcher above it")
      ->required();
  app.add_flag("--json", as_json, "every thread's frames, as JSON");
  app.add_flag("--full-names", full_names, "names of C++ functions with all their template arguments");
  int status = 0;
  if (!parse(app, argc, argv, status)) return status;
  std::vector<std::string> complaints;
  const Settings settings = Settings::from_environment(complaints);
  show_full_names(full_names || settings.full_names);
  auto run = RunDirectory::at(find_run(name, settings));
  if (!run) throw Failure(ACCEL_EXIT_USAGE, run.error);
  const std::vector<Found> found = ask(*run);
  if (found.empty())
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} holds no record of a process", run->path()));
  if (as_json) {
    std::cout << json_of(found).dump(2, ' ', false, json::error_handler_t::replace) << "\n";
  } else {
    std::cout << text_of(found);
  }
  return 0;
}

}  // namespace accel
