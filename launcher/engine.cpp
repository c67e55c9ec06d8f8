#include "launcher/engine.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "launcher/captured.h"
#include "launcher/failure.h"
#include "record/base_name.h"
#include "record/run_directory.h"

namespace accel {
namespace {

bool is_file(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

/// What a launcher says of itself; it starts no job for that.
std::string version_of(const std::string& program) {
  constexpr std::int64_t kPatience = 10'000'000'000;
  return run_captured({program, "--version"}, kPatience).output;
}

/// What a launcher's options say: up to the program, whose words are its own.
struct Option {
  std::string name;
  std::string value;
};
std::vector<Option> launcher_options(const std::vector<std::string>& command) {
  const auto takes_two = [](const std::string& word) {
    for (const char* const known :
         {"-mca", "--mca", "-gmca", "--gmca", "--omca", "--prtemca", "--pmixmca", "-genv", "-env"}) {
      if (word == known) return true;
    }
    return false;
  };
  std::vector<Option> options;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (!word.starts_with("-")) {
      if (i > 1 && !command[i - 1].starts_with("-")) break;
      continue;
    }
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      options.push_back({word.substr(0, equals), word.substr(equals + 1)});
    } else if (i + 1 < command.size()) {
      options.push_back({word, command[i + 1]});
    }
    if (!takes_two(word)) continue;
    i += 2;
    if (i + 1 < command.size() && !command[i + 1].starts_with("-")) break;
  }
  return options;
}

bool names_host_file(const std::string& option) {
  for (const char* const known : {"-f", "-hostfile", "--hostfile", "-machinefile", "--machinefile",
                                  "--default-hostfile", "-default-hostfile"}) {
    if (option == known) return true;
  }
  return false;
}

bool names_hosts(const std::string& option) {
  for (const char* const known : {"-H", "-host", "--host", "-hosts", "--hosts"}) {
    if (option == known) return true;
  }
  return false;
}

bool is_this_host(const std::string& host) {
  return host.empty() || host == "localhost" || host == "127.0.0.1" || host == "::1" || host == host_name();
}

/// "a:4,b".
bool lists_another_host(const std::string& list) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (!is_this_host(word.substr(0, word.find(':')))) return true;
  }
  return false;
}

bool file_lists_another_host(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (words >> host && !is_this_host(host.substr(0, host.find(':')))) return true;
  }
  return false;
}

void check_hostfile(const std::vector<std::string>& command) {
  for (const Option& option : launcher_options(command)) {
    if (names_host_file(option.name) && access(option.value.c_str(), R_OK) != 0) {
      throw Failure(ACCEL_EXIT_USAGE,
                    fmt::format("host file {} (given to {} by {}) cannot be read: check the path",
                                option.value, command[0], option.name));
    }
  }
}

}  // namespace

std::string find_program(const std::string& name) {
  const auto judge = [&](const std::string& path) {
    if (access(path.c_str(), X_OK) != 0 || !is_file(path)) {
      throw Failure(ACCEL_EXIT_NOT_EXECUTABLE,
                    fmt::format("{} is not executable: check its permissions", path));
    }
    return path;
  };
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), F_OK) == 0) return judge(name);
    throw Failure(ACCEL_EXIT_NOT_FOUND, fmt::format("{} does not exist: check the path", name));
  }
  const char* path = std::getenv("PATH");
  std::istringstream directories(path != nullptr ? path : "/usr/bin:/bin");
  std::string not_executable;
  for (std::string directory; std::getline(directories, directory, ':');) {
    std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (!is_file(candidate)) continue;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (not_executable.empty()) not_executable = candidate;
  }
  if (!not_executable.empty()) return judge(not_executable);
  throw Failure(ACCEL_EXIT_NOT_FOUND, fmt::format("{}: command not found in PATH; is it installed?", name));
}

bool may_span_hosts(Engine engine, const std::vector<std::string>& command) {
  const auto text = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (std::atoi(text("SLURM_JOB_NUM_NODES").c_str()) > 1) return true;
  for (const char* const name :
       {"PBS_NODEFILE", "PE_HOSTFILE", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE",
        "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "LSB_DJOB_HOSTFILE"}) {
    if (file_lists_another_host(text(name))) return true;
  }
  if (engine == Engine::DeepSpeed && file_lists_another_host("/job/hostfile")) return true;
  if (engine == Engine::Plain) return false;
  for (const Option& option : launcher_options(command)) {
    if (names_hosts(option.name) && lists_another_host(option.value)) return true;
    if (names_host_file(option.name) && file_lists_another_host(option.value)) return true;
    const bool slurm =
        option.name == "-N" || option.name == "--nodes" || option.name == "-w" || option.name == "--nodelist";
    if (engine == Engine::Srun && slurm && option.value != "1") return true;
  }
  return false;
}

bool inherits(Engine engine) { return engine != Engine::OpenMpi && engine != Engine::Hydra; }

std::string end_at_first_failure(Engine engine, std::vector<std::string>& command,
                                 std::map<std::string, std::string>& variables) {
  if (engine == Engine::Srun) {
    for (const auto& [name, value] : {std::pair("SLURM_KILL_BAD_EXIT", "1"), std::pair("SLURM_WAIT", "30")}) {
      if (std::getenv(name) == nullptr) variables[name] = value;
    }
  }
  if (engine != Engine::Torchrun) return {};
  std::string asked;
  // torchrun reads PET_*, llamafactory-cli MAX_RESTARTS; none restarts anything unless it is told to.
  for (const char* name : {"PET_MAX_RESTARTS", "MAX_RESTARTS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || value == std::string("0")) continue;
    variables[name] = "0";
    asked = fmt::format("{}={}", name, value);
  }
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (command[i].ends_with(".py")) break;  // the script: what follows is its own
    for (const std::string option : {"--max-restarts", "--max_restarts"}) {
      if (command[i] == option && i + 1 < command.size()) {
        if (command[i + 1] != "0") asked = fmt::format("{} {}", option, command[i + 1]);
        command[++i] = "0";
      } else if (command[i].starts_with(option + "=")) {
        if (command[i] != option + "=0") asked = command[i];
        command[i] = option + "=0";
      }
    }
  }
  return asked;
}

std::string deepspeed_environment(const std::map<std::string, std::string>& variables) {
  const char* named = std::getenv("DS_ENV_FILE");
  const char* home = std::getenv("HOME");
  std::ifstream own(named != nullptr ? std::string(named)
                                     : std::string(home != nullptr ? home : "") + "/.deepspeed_env");
  std::string text;
  for (std::string line; std::getline(own, line);) {
    if (!variables.contains(line.substr(0, line.find('=')))) text += line + "\n";
  }
  for (const auto& [name, value] : variables) text += fmt::format("{}={}\n", name, value);
  return text;
}

Engine detect_engine(const std::vector<std::string>& command) {
  const std::string& program = command[0];
  std::string name(base_name(program));
  if (name.starts_with("python") && command.size() > 2 && command[1] == "-m") name = command[2];
  for (const auto& [known, engine] :
       {std::pair("srun", Engine::Srun), std::pair("deepspeed", Engine::DeepSpeed),
        std::pair("horovodrun", Engine::Horovod), std::pair("horovod.runner.launch", Engine::Horovod),
        std::pair("torchrun", Engine::Torchrun), std::pair("torch.distributed.run", Engine::Torchrun),
        std::pair("torch.distributed.launch", Engine::Torchrun), std::pair("accelerate", Engine::Torchrun),
        std::pair("accelerate.commands.launch", Engine::Torchrun),
        std::pair("llamafactory-cli", Engine::Torchrun)}) {
    if (name == known) return engine;
  }
  const bool launcher = name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "orterun" ||
                        name == "prterun" || name == "prun";
  if (!launcher) return Engine::Plain;
  const std::string version = version_of(program);
  const auto says = [&](const char* word) { return version.find(word) != std::string::npos; };
  if (says("Open MPI") || says("OpenRTE") || says("PRTE") || says("PRRTE")) return Engine::OpenMpi;
  if (says("HYDRA") || says("Intel(R) MPI") || says("Hydra")) return Engine::Hydra;
  return Engine::Plain;
}

std::vector<std::string> command_for(Engine engine, std::vector<std::string> command,
                                     const std::map<std::string, std::string>& variables,
                                     const std::vector<std::string>& by_name) {
  if (inherits(engine)) return command;
  check_hostfile(command);
  std::map<std::string, std::string> all = variables;
  const std::string preload = "LD_PRELOAD";
  std::vector<std::string> kept;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const bool openmpi_preload = engine == Engine::OpenMpi && (command[i] == "-x" || command[i] == "--x") &&
                                 i + 1 < command.size() && command[i + 1].starts_with(preload + "=");
    const bool hydra_preload = engine == Engine::Hydra && (command[i] == "-genv" || command[i] == "-env") &&
                               i + 2 < command.size() && command[i + 1] == preload;
    if (openmpi_preload) {
      all[preload] += fmt::format(":{}", command[++i].substr(preload.size() + 1));
    } else if (hydra_preload) {
      all[preload] += fmt::format(":{}", command[i + 2]);
      i += 2;
    } else {
      kept.push_back(command[i]);
    }
  }
  std::vector<std::string> result{command[0]};
  for (const auto& [name, value] : all) {
    if (engine == Engine::OpenMpi) {
      result.insert(result.end(), {"-x", fmt::format("{}={}", name, value)});
    } else {
      result.insert(result.end(), {"-genv", name, value});
    }
  }
  // Hydra hands on its whole environment.
  if (engine == Engine::OpenMpi) {
    for (const std::string& name : by_name) result.insert(result.end(), {"-x", name});
  }
  result.insert(result.end(), kept.begin(), kept.end());
  return result;
}

}  // namespace accel
