#include "launcher/doctor/doctor.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "launcher/command_line.h"
#include "launcher/doctor/checks.h"
#include "launcher/failure.h"

namespace accel::doctor {
namespace {

const char* name_of(Level level) {
  return level == Level::Ok ? "ok" : level == Level::Warning ? "warning" : "error";
}

}  // namespace

Findings examine(const Request& request) {
  Findings all;
  // A check that fails itself is a line like any other.
  const auto add = [&](const char* subject, auto&& check) {
    try {
      for (Finding& finding : check()) all.push_back(std::move(finding));
    } catch (const std::exception& error) {
      all.push_back(
          {Level::Warning, subject, fmt::format("this check itself has failed: {}", error.what()), ""});
    }
  };
  add("kernel", check_kernel);
  add("shared memory", check_shared_memory);
  add("limits", check_limits);
  add("container", check_container);
  add("GPUs", check_gpus);
  add("MPI", check_mpi);
  if (!request.hostfile.empty()) add("hosts", [&] { return check_hosts(request.hostfile); });
  if (!request.command.empty()) add("program", [&] { return check_command(request.command); });
  return all;
}

std::string text_of(const Findings& findings, bool json) {
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"level", name_of(finding.level)},
                      {"subject", finding.subject},
                      {"text", finding.text},
                      {"remedy", finding.remedy}});
    }
    return nlohmann::json{{"version", 1}, {"findings", list}}.dump(2) + "\n";
  }
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:8} {}: {}\n", name_of(finding.level), finding.subject, finding.text);
    if (!finding.remedy.empty()) text += fmt::format("{:8}   → {}\n", "", finding.remedy);
  }
  const auto count = [&](Level level) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& one) { return one.level == level; });
  };
  return text + fmt::format("{} ok, {} warnings, {} errors\n", count(Level::Ok), count(Level::Warning),
                            count(Level::Error));
}

int main(int argc, char** argv) {
  CLI::App app(
      "What is wrong with the machine, its GPUs, its other hosts, or a command's libraries; changes nothing.",
      "accelrun doctor");
  app.prefix_command();
  app.footer("\nExit status: 0, or 69 where something is an error.");
  Request request;
  app.add_option("--hostfile", request.hostfile, "also ask each host of this file")->type_name("FILE");
  app.add_flag("--json", request.json, "for programs");
  if (int status = 0; !parse(app, argc, argv, status)) return status;
  request.command = app.remaining();
  if (!request.command.empty() && request.command.front() == "--")
    request.command.erase(request.command.begin());
  const Findings findings = examine(request);
  std::cout << text_of(findings, request.json);
  const bool wrong = std::any_of(findings.begin(), findings.end(),
                                 [](const Finding& one) { return one.level == Level::Error; });
  return wrong ? ACCEL_EXIT_UNAVAILABLE : 0;
}

}  // namespace accel::doctor
