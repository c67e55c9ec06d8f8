#include "report/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

#include <dwarf.h>
#include <fmt/format.h>

namespace accel {
namespace {

/// libdw by dlopen: a NEEDED entry of ours that a machine lacks would keep the user's job from starting.
struct Libdw {
#define ACCEL_LIBDW(X)                                                                                              \
  X(dwfl_begin) X(dwfl_end) X(dwfl_linux_proc_maps_report) X(dwfl_report_end) X(dwfl_addrmodule)                     \
  X(dwfl_module_addrinfo) X(dwfl_module_getsrc) X(dwfl_lineinfo) X(dwfl_module_addrdie) X(dwarf_getscopes)          \
  X(dwarf_getscopes_die) X(dwarf_tag) X(dwarf_diename) X(dwarf_attr_integrate) X(dwarf_formstring)                  \
  X(dwarf_formudata) X(dwarf_attr) X(dwarf_getsrcfiles) X(dwarf_filesrc) X(dwarf_diecu)                             \
  X(dwfl_linux_proc_find_elf) X(dwfl_standard_find_debuginfo)
#define X(name) decltype(&::name) name = nullptr;
  ACCEL_LIBDW(X)
#undef X
  bool loaded = false;

  Libdw() {
    void* library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    loaded = true;
#define X(symbol)                                                            \
  symbol = reinterpret_cast<decltype(&::symbol)>(dlsym(library, #symbol)); \
  loaded = loaded && symbol != nullptr;
    ACCEL_LIBDW(X)
#undef X
  }
  static const Libdw& get() {
    static const Libdw libdw;
    return libdw;
  }
};

std::string demangle(const char* name) {
  if (name == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         std::free);
  std::string result = status == 0 && text ? text.get() : name;
  // Versions of a function that the compiler made: foo.isra.0, foo.constprop.1, foo.cold
  if (const auto dot = result.find('.'); status != 0 && dot != std::string::npos && dot != 0) result.resize(dot);
  return result;
}

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::string path;
};

std::vector<Mapping> parse_maps(const std::string& maps) {
  std::vector<Mapping> result;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);) {
    Mapping mapping;
    unsigned long begin = 0, end = 0, offset = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx", &begin, &end, &offset) != 3) continue;
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    mapping = {begin, end, offset, line.substr(slash)};
    result.push_back(mapping);
  }
  return result;
}

/// One process's modules, opened for symbol look-ups.
class Modules {
 public:
  explicit Modules(const std::string& maps) : mappings_(parse_maps(maps)) {
    const Libdw& dw = Libdw::get();
    if (!dw.loaded || maps.empty()) return;
    callbacks_.find_elf = dw.dwfl_linux_proc_find_elf;
    callbacks_.find_debuginfo = dw.dwfl_standard_find_debuginfo;
    dwfl_ = dw.dwfl_begin(&callbacks_);
    std::string text = maps;
    FILE* file = fmemopen(text.data(), text.size(), "r");
    if (dwfl_ == nullptr || file == nullptr) return;
    dw.dwfl_linux_proc_maps_report(dwfl_, file);
    std::fclose(file);
    dw.dwfl_report_end(dwfl_, nullptr, nullptr);
  }
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;
  ~Modules() {
    if (dwfl_ != nullptr) Libdw::get().dwfl_end(dwfl_);
  }

  void add_frames(std::uint64_t pc, std::vector<Frame>& frames) const {
    Frame frame;
    for (const Mapping& mapping : mappings_) {
      if (pc < mapping.begin || pc >= mapping.end) continue;
      frame.module = mapping.path;
      frame.offset = pc - mapping.begin + mapping.offset;
    }
    const Libdw& dw = Libdw::get();
    // The address is where the call returns to: the call itself stands before it.
    const std::uint64_t call = pc - 1;
    Dwfl_Module* module = dwfl_ != nullptr ? dw.dwfl_addrmodule(dwfl_, call) : nullptr;
    if (module == nullptr) {
      frames.push_back(frame);
      return;
    }
    GElf_Off offset = 0;
    GElf_Sym symbol;
    frame.function = demangle(dw.dwfl_module_addrinfo(module, call, &offset, &symbol, nullptr, nullptr, nullptr));
    if (Dwfl_Line* line = dw.dwfl_module_getsrc(module, call)) {
      const char* file = dw.dwfl_lineinfo(line, nullptr, &frame.line, nullptr, nullptr, nullptr);
      if (file != nullptr) frame.file = file;
    }
    add_inlined(module, call, frame, frames);
  }

 private:
  /// Functions inlined at the address, innermost first, then the function they were inlined into.
  static void add_inlined(Dwfl_Module* module, std::uint64_t call, Frame frame, std::vector<Frame>& frames) {
    const Libdw& dw = Libdw::get();
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = dw.dwfl_module_addrdie(module, call, &bias);
    Dwarf_Die* scopes = nullptr;
    int count = unit != nullptr ? dw.dwarf_getscopes(unit, call - bias, &scopes) : 0;
    if (count > 0) {
      // The scopes of the innermost DIE in the order of the program text, not of where it was inlined from.
      Dwarf_Die innermost = scopes[0];
      std::free(scopes);
      scopes = nullptr;
      count = dw.dwarf_getscopes_die(&innermost, &scopes);
    }
    for (int i = 0; i < count; ++i) {
      const int tag = dw.dwarf_tag(&scopes[i]);
      if (tag != DW_TAG_inlined_subroutine) continue;
      Frame inlined = frame;
      Dwarf_Attribute attribute;
      const char* linkage = nullptr;
      if (Dwarf_Attribute* found = dw.dwarf_attr_integrate(&scopes[i], DW_AT_linkage_name, &attribute)) {
        linkage = dw.dwarf_formstring(found);
      }
      inlined.function = linkage != nullptr ? demangle(linkage) : demangle(dw.dwarf_diename(&scopes[i]));
      frames.push_back(inlined);
      // Where it was called from is the next frame's place.
      Dwarf_Word line = 0;
      Dwarf_Word file_index = 0;
      if (Dwarf_Attribute* found = dw.dwarf_attr(&scopes[i], DW_AT_call_line, &attribute)) {
        if (dw.dwarf_formudata(found, &line) == 0) frame.line = static_cast<int>(line);
      }
      if (Dwarf_Attribute* found = dw.dwarf_attr(&scopes[i], DW_AT_call_file, &attribute)) {
        Dwarf_Die cu;
        Dwarf_Files* files = nullptr;
        std::size_t files_count = 0;
        if (dw.dwarf_formudata(found, &file_index) == 0 && dw.dwarf_diecu(&scopes[i], &cu, nullptr, nullptr) != nullptr &&
            dw.dwarf_getsrcfiles(&cu, &files, &files_count) == 0 && file_index < files_count) {
          if (const char* file = dw.dwarf_filesrc(files, file_index, nullptr, nullptr)) frame.file = file;
        }
      }
    }
    std::free(scopes);
    frames.push_back(frame);
  }

  std::vector<Mapping> mappings_;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
};

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_library_inside(const Frame& frame) {
  const std::string name = base_name(frame.module);
  for (const char* prefix : {"libaccel.so", "libmpi", "libmpich", "libopen-", "mca_", "libuc", "libpmix", "libevent"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

std::vector<Frame> symbolize(const std::string& maps, const std::vector<std::uint64_t>& pcs) {
  std::vector<Frame> frames;
  const Modules modules(maps);
  for (const std::uint64_t pc : pcs) modules.add_frames(pc, frames);
  return frames;
}

std::vector<Frame> user_frames(std::vector<Frame> frames) {
  const auto first = std::find_if(frames.begin(), frames.end(), [](const Frame& f) { return !is_library_inside(f); });
  if (first != frames.end()) frames.erase(frames.begin(), first);
  const auto main = std::find_if(frames.begin(), frames.end(), [](const Frame& f) { return f.function == "main"; });
  if (main != frames.end()) frames.erase(main + 1, frames.end());
  return frames;
}

std::string traceback_lines(const std::vector<Frame>& frames) {
  std::string text;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    const std::string function = frame->function.empty() ? "??" : frame->function;
    if (!frame->file.empty()) {
      text += fmt::format("  File \"{}\", line {}, in {}\n", frame->file, frame->line, function);
    } else {
      text += fmt::format("  in {} ({}+{:#x})\n", function, base_name(frame->module), frame->offset);
    }
  }
  return text;
}

}  // namespace accel
