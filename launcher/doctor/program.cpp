#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <map>
#include <set>

#include "launcher/captured.h"
#include "launcher/doctor/checks.h"
#include "launcher/doctor/elf_file.h"
#include "launcher/engine.h"

namespace accel::doctor {
namespace {

std::string located(const std::string& word) {
  return word.find('/') != std::string::npos ? word : in_path(word);
}

bool is_program(const std::string& path) {
  struct stat info {};
  return !path.empty() && stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

/// The word of the command that the ranks run.
std::string program_of(const std::vector<std::string>& command) {
  const bool launched = detect_engine(command) != Engine::Plain;
  for (std::size_t i = launched ? 1 : 0; i < command.size(); ++i) {
    std::string path = located(command[i]);
    if (is_program(path)) return path;
  }
  return {};
}

bool names(const std::string& soname, std::initializer_list<const char*> libraries) {
  for (const char* library : libraries) {
    if (soname.starts_with(library)) return true;
  }
  return false;
}

/// All that the loader would load, by soname.
struct Closure {
  std::map<std::string, std::string> libraries;  ///< soname to path
  std::vector<std::string> missing;
  std::vector<ElfFile> files;

  explicit Closure(const ElfFile& program) {
    std::deque<ElfFile> open{program};
    while (!open.empty()) {
      const ElfFile file = open.front();
      open.pop_front();
      files.push_back(file);
      for (const std::string& soname : file.needed) {
        if (libraries.contains(soname)) continue;
        const std::string path = find_library(soname, file);
        libraries[soname] = path;
        if (path.empty()) {
          missing.push_back(fmt::format("{} (needed by {})", soname, file.path));
        } else if (auto library = read_elf(path)) {
          open.push_back(std::move(*library));
        }
      }
    }
  }
  /// Path of the first of these libraries; empty: none is linked.
  std::string linked(std::initializer_list<const char*> wanted) const {
    for (const auto& [soname, path] : libraries) {
      if (names(soname, wanted)) return path;
    }
    return {};
  }
};

Finding about_nccl(const Closure& closure) {
  if (const std::string path = closure.linked({"libnccl.so"}); !path.empty())
    return {Level::Ok, "NCCL", fmt::format("linked: {}", path), ""};
  for (const ElfFile& file : closure.files) {
    if (!file.defines_nccl) continue;
    if (file.names_profiler) {
      return {
          Level::Ok, "NCCL",
          fmt::format(
              "inside {}: its calls are seen through its profiler interface if it is 2.27 or newer, without "
              "reduction ops and call sites",
              file.path),
          ""};
    }
    return {
        Level::Warning, "NCCL",
        fmt::format("inside {}, and too old for the profiler interface: its calls cannot be seen", file.path),
        "link it with libnccl.so.2, or with NCCL 2.27"};
  }
  return {Level::Ok, "NCCL", "not linked; seen if it is opened at run time", ""};
}

Finding about_cuda(const Closure& closure) {
  if (const std::string path = closure.linked({"libcuda.so"}); !path.empty())
    return {Level::Ok, "CUDA", fmt::format("the driver is linked: {}", path), ""};
  if (const std::string path = closure.linked({"libcudart.so"}); !path.empty())
    return {Level::Ok, "CUDA", fmt::format("the driver through the runtime: {}", path), ""};
  for (const ElfFile& file : closure.files) {
    if (file.names_driver)
      return {Level::Ok, "CUDA", fmt::format("the driver through a runtime inside {}", file.path), ""};
  }
  return {Level::Ok, "CUDA", "not linked; seen if it is opened at run time", ""};
}

Finding about_mpi(const Closure& closure) {
  if (const std::string path = closure.linked({"libmpi.so", "libmpich.so", "libmpi_cray", "libmpi_mpifh"});
      !path.empty())
    return {Level::Ok, "MPI", fmt::format("linked: {}", path), ""};
  for (const ElfFile& file : closure.files) {
    if (file.defines_mpi) {
      return {Level::Warning, "MPI", fmt::format("inside {}: its calls cannot be seen", file.path),
              "link it with the shared MPI library"};
    }
  }
  return {Level::Ok, "MPI", "not linked; seen if it is opened at run time", ""};
}

}  // namespace

Findings check_command(const std::vector<std::string>& command) {
  const std::string program = program_of(command);
  if (program.empty())
    return {{Level::Error, "program", fmt::format("no word of the command is a program: {}", command[0]),
             "check the path"}};
  std::string first;
  std::getline(std::ifstream(program), first);
  if (first.starts_with("#!"))
    return {
        {Level::Ok, "program",
         fmt::format("{} is a script for {}; what that opens at run time is seen", program, first.substr(2)),
         ""}};
  const auto file = read_elf(program);
  if (!file)
    return {{Level::Error, "program", fmt::format("{} is neither a script nor an ELF file", program), ""}};
  struct stat info {};
  stat(program.c_str(), &info);
  if ((info.st_mode & (S_ISUID | S_ISGID)) != 0) {
    return {{Level::Error, "program", fmt::format("{} is setuid: the loader ignores LD_PRELOAD", program),
             "run a copy without the bit"}};
  }
  if (!file->dynamic)
    return {{Level::Error, "program",
             fmt::format("{} is linked statically: nothing can be preloaded", program),
             "link it dynamically"}};
  const Closure closure(*file);
  Findings findings{
      {Level::Ok, "program", fmt::format("{}, {} libraries", program, closure.libraries.size()), ""}};
  for (const std::string& missing : closure.missing)
    findings.push_back(
        {Level::Error, "program", fmt::format("{} is not found", missing), "LD_LIBRARY_PATH, on all nodes"});
  findings.push_back(about_mpi(closure));
  findings.push_back(about_nccl(closure));
  findings.push_back(about_cuda(closure));
  return findings;
}

}  // namespace accel::doctor
