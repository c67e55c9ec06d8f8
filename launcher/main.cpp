// accelrun: the command line.
#include <accel/accel.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "launcher/failure.h"
#include "launcher/job.h"
#include "settings/settings.h"

namespace accel {
namespace {

constexpr const char* kExamples = R"(
Examples:
  accelrun mpirun -n 8 ./solver input.nml
  accelrun --check sync --timeout 120 mpiexec -n 4 python3 train.py
  accelrun --on-error report --keep -- ./run_all.sh

Exit status: 80 mismatch, 81 deadlock or time-out, 82 early exit, 85 crash; else the command's own.
)";

/// "ACCEL_WARN_AFTER" -> "--warn-after"
std::string option_name(const std::string& variable) {
  std::string name = "--";
  for (const char c : variable.substr(std::string("ACCEL_").size())) {
    name += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string own_directory() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string self(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return self.substr(0, self.rfind('/'));
}

std::string find_library(const std::string& asked) {
  if (!asked.empty()) {
    if (access(asked.c_str(), R_OK) == 0) return asked;
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("--library {}: no such file", asked));
  }
  for (const char* place : {"/libaccel.so", "/../lib/libaccel.so"}) {
    if (access((own_directory() + place).c_str(), R_OK) == 0) return own_directory() + place;
  }
  throw Failure(ACCEL_EXIT_INTERNAL,
                "libaccel.so is neither beside accelrun nor in ../lib; --library PATH names it");
}

/// What leads libraries loaded with RTLD_DEEPBIND to `library`.
std::string auditor_of(const std::string& library) {
  if (gnu_get_libc_version() < std::string("2.35")) {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--audit needs glibc 2.35 or newer, this is {}: older ones crash "
                              "or slow down under LD_AUDIT",
                              gnu_get_libc_version()));
  }
  const std::string auditor = library.substr(0, library.rfind('/') + 1) + "libaccel-audit.so";
  if (access(auditor.c_str(), R_OK) == 0) return auditor;
  throw Failure(ACCEL_EXIT_INTERNAL, fmt::format("{}: no such file, but --audit needs it", auditor));
}

/// The user's words after our own options.
std::vector<std::string> command_of(const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  if (!words.empty() && words.front() == "--") {
    words.erase(words.begin());
  } else if (!words.empty() && words.front().size() > 1 && words.front().front() == '-') {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("unknown option {}; accelrun --help lists them", words.front()));
  }
  if (words.empty()) throw Failure(ACCEL_EXIT_USAGE, "no command given; try: accelrun mpirun -n 4 ./program");
  return words;
}

int run(int argc, char** argv) {
  CLI::App app("Run a distributed job so that mismatches, deadlocks and lost ranks become errors.",
               "accelrun");
  app.set_version_flag("--version", std::string("accelrun ") + ACCEL_VERSION);
  app.footer(kExamples);
  app.prefix_command();
  std::map<std::string, std::string> given;
  for (const Variable& variable : variables()) {
    const std::string name = variable.name;
    if (name == "ACCEL_DISABLE") continue;
    app.add_option(option_name(name), given[name],
                   fmt::format("{} ({})", variable.meaning, variable.accepted))
        ->type_name("VALUE");
  }
  JobRequest request;
  std::string library;
  bool audit = false;
  std::string engine = "auto";
  app.add_flag("--keep", request.keep, "keep the run directory and say where it is");
  app.add_flag("--audit", audit, "also see what is loaded with RTLD_DEEPBIND (LD_AUDIT; needs glibc 2.35)");
  app.add_option("--engine", engine, "who starts the ranks (auto, plain, openmpi or hydra)")
      ->type_name("VALUE");
  app.add_option("--library", library, "libaccel.so to preload (default: the one beside accelrun)")
      ->type_name("VALUE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    throw Failure(ACCEL_EXIT_USAGE, std::string(error.what()) + "; see accelrun --help");
  }

  for (const Variable& variable : variables()) {
    const std::string option = option_name(variable.name);
    const auto value = given.find(variable.name);
    if (value == given.end() || app.count(option) == 0) continue;
    if (!accepts(variable.name, value->second)) {
      throw Failure(ACCEL_EXIT_USAGE,
                    fmt::format("{} {} is not valid: expected {}", option, value->second, variable.accepted));
    }
    setenv(variable.name, value->second.c_str(), 1);
  }
  request.command = command_of(app);
  request.command[0] = find_program(request.command[0]);
  static const std::map<std::string, Engine> engines = {
      {"plain", Engine::Plain}, {"openmpi", Engine::OpenMpi}, {"hydra", Engine::Hydra}};
  if (engine != "auto" && !engines.contains(engine)) {
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("--engine {} is not valid: expected auto, plain, openmpi or hydra", engine));
  }
  request.engine = engine == "auto" ? detect_engine(request.command[0]) : engines.at(engine);

  std::vector<std::string> complaints;
  request.settings = Settings::from_environment(complaints);
  for (const std::string& complaint : complaints) std::cerr << "accelrun: " << complaint << "\n";
  if (request.settings.run_id.empty()) request.settings.run_id = new_run_id();
  setenv("ACCEL_RUN_ID", request.settings.run_id.c_str(), 1);
  setenv("ACCEL_RUN_DIR", request.settings.run_base.c_str(), 1);
  for (const Variable& variable : variables()) {
    const char* value = std::getenv(variable.name);
    if (value != nullptr && value[0] != '\0') request.variables[variable.name] = value;
  }
  const auto put_first = [&](const char* name, const std::string& path) {
    const char* others = std::getenv(name);
    request.variables[name] =
        path + (others != nullptr && others[0] != '\0' ? ":" + std::string(others) : "");
  };
  const std::string preloaded = find_library(library);
  put_first("LD_PRELOAD", preloaded);
  if (audit) put_first("LD_AUDIT", auditor_of(preloaded));
  return run_job(request);
}

}  // namespace
}  // namespace accel

int main(int argc, char** argv) {
  try {
    return accel::run(argc, argv);
  } catch (const accel::Failure& failure) {
    std::cerr << "accelrun: " << failure.what() << "\n";
    return failure.status();
  } catch (const std::exception& error) {
    std::cerr << "accelrun: " << error.what() << "\n";
    return ACCEL_EXIT_INTERNAL;
  }
}
