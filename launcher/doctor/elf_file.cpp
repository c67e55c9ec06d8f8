#include "launcher/doctor/elf_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include "launcher/captured.h"
#include "record/file_descriptor.h"

namespace accel::doctor {
namespace {

std::vector<std::string> split_path(const std::string& text, const std::string& origin) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) {
    for (const char* name : {"$ORIGIN", "${ORIGIN}"}) {
      if (const auto at = part.find(name); at != std::string::npos)
        part.replace(at, std::strlen(name), origin);
    }
    parts.push_back(part);
  }
  return parts;
}

class Elf_ {
 public:
  explicit Elf_(int fd) : elf_(elf_begin(fd, ELF_C_READ, nullptr)) {}
  ~Elf_() { elf_end(elf_); }
  Elf_(const Elf_&) = delete;
  Elf_& operator=(const Elf_&) = delete;
  ::Elf* get() const { return elf_; }

 private:
  ::Elf* elf_;
};

void read_dynamic(::Elf* elf, Elf_Scn* section, const GElf_Shdr& header, ElfFile& file) {
  const std::string origin = file.path.substr(0, file.path.rfind('/'));
  Elf_Data* const data = elf_getdata(section, nullptr);
  const std::size_t count = header.sh_entsize != 0 ? header.sh_size / header.sh_entsize : 0;
  for (std::size_t i = 0; data != nullptr && i < count; ++i) {
    GElf_Dyn entry;
    if (gelf_getdyn(data, static_cast<int>(i), &entry) == nullptr) break;
    const char* text = elf_strptr(elf, header.sh_link, entry.d_un.d_val);
    if (text == nullptr) continue;
    if (entry.d_tag == DT_NEEDED) file.needed.emplace_back(text);
    if (entry.d_tag == DT_RUNPATH || entry.d_tag == DT_RPATH) file.run_path = split_path(text, origin);
  }
}

void read_symbols(::Elf* elf, Elf_Scn* section, const GElf_Shdr& header, ElfFile& file) {
  Elf_Data* const data = elf_getdata(section, nullptr);
  const std::size_t count = header.sh_entsize != 0 ? header.sh_size / header.sh_entsize : 0;
  for (std::size_t i = 0; data != nullptr && i < count; ++i) {
    GElf_Sym symbol;
    if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
    const char* name =
        symbol.st_shndx != SHN_UNDEF ? elf_strptr(elf, header.sh_link, symbol.st_name) : nullptr;
    if (name == nullptr) continue;
    file.defines_nccl = file.defines_nccl || std::strcmp(name, "pncclAllReduce") == 0;
    file.defines_mpi = file.defines_mpi || std::strcmp(name, "PMPI_Init") == 0;
  }
}

/// Words that remain where the symbols are stripped.
void read_words(int fd, ElfFile& file) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_size == 0) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return;
  const auto has = [&](std::string_view word) {
    return memmem(memory, size, word.data(), word.size()) != nullptr;
  };
  file.names_driver = has("libcuda.so.1");
  file.names_profiler = has("NCCL_PROFILER_PLUGIN");
  file.defines_nccl = file.defines_nccl || (has("NCCL_DEBUG_SUBSYS") && has("NCCL_MAX_NCHANNELS"));
  munmap(memory, size);
}

/// What the loader's cache holds.
const std::map<std::string, std::string>& cache() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> result;
    std::istringstream lines(run_captured({"/sbin/ldconfig", "-p"}, 5'000'000'000).output);
    for (std::string line; std::getline(lines, line);) {
      const auto arrow = line.find(" => ");
      std::istringstream words(line);
      std::string soname;
      if (arrow != std::string::npos && words >> soname && line.find("x32") == std::string::npos)
        result.emplace(soname, line.substr(arrow + 4));
    }
    return result;
  }();
  return all;
}

}  // namespace

std::optional<ElfFile> read_elf(const std::string& path) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || elf_version(EV_CURRENT) == EV_NONE) return std::nullopt;
  const Elf_ elf(fd.get());
  if (elf.get() == nullptr || elf_kind(elf.get()) != ELF_K_ELF) return std::nullopt;
  ElfFile file;
  char resolved[4096];
  file.path = realpath(path.c_str(), resolved) != nullptr ? resolved : path;
  std::size_t headers = 0;
  elf_getphdrnum(elf.get(), &headers);
  for (std::size_t i = 0; i < headers; ++i) {
    GElf_Phdr header;
    if (gelf_getphdr(elf.get(), static_cast<int>(i), &header) != nullptr && header.p_type == PT_DYNAMIC)
      file.dynamic = true;
  }
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    if (header.sh_type == SHT_DYNAMIC) read_dynamic(elf.get(), section, header, file);
    if (header.sh_type == SHT_SYMTAB || header.sh_type == SHT_DYNSYM)
      read_symbols(elf.get(), section, header, file);
  }
  read_words(fd.get(), file);
  return file;
}

std::string find_library(const std::string& soname, const ElfFile& from) {
  std::vector<std::string> places = from.run_path;
  if (const char* path = std::getenv("LD_LIBRARY_PATH")) {
    for (const std::string& place : split_path(path, "")) places.push_back(place);
  }
  for (const std::string& place : places) {
    std::string candidate = fmt::format("{}/{}", place, soname);
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  if (const auto found = cache().find(soname); found != cache().end()) return found->second;
  for (const char* place :
       {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}) {
    std::string candidate = fmt::format("{}/{}", place, soname);
    if (access(candidate.c_str(), R_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace accel::doctor
