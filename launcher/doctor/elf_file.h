// What an ELF file says of itself. Read with libelf; nothing of it is run.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace accel::doctor {

struct ElfFile {
  std::string path;
  bool dynamic = false;               ///< the loader has a part in it
  std::vector<std::string> needed;    ///< sonames
  std::vector<std::string> run_path;  ///< of DT_RUNPATH or DT_RPATH, $ORIGIN put in
  bool defines_nccl = false;          ///< NCCL is inside
  bool names_profiler = false;        ///< and it knows the profiler interface (2.23 and newer)
  bool defines_mpi = false;           ///< MPI is inside
  bool names_driver = false;          ///< it opens libcuda.so.1 itself: a CUDA runtime is inside
};

/// nullopt: not an ELF file.
std::optional<ElfFile> read_elf(const std::string& path);

/// Where a needed library is, as the loader would look; empty: nowhere.
std::string find_library(const std::string& soname, const ElfFile& from);

}  // namespace accel::doctor
