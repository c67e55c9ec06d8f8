#include "report/symbols.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "record/base_name.h"
#include "record/file_descriptor.h"
#include "report/libdw.h"
#include "report/mappings.h"
#include "report/names.h"

namespace accel {
namespace {

std::string demangle(const char* name) {
  if (name == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         std::free);
  std::string result = status == 0 && text ? text.get() : name;
  if (const auto version = result.find('@'); version != std::string::npos && version != 0)
    result.resize(version);
  // Versions of a function that the compiler made: foo.isra.0, foo.constprop.1, foo.cold
  if (const auto dot = result.find('.'); status != 0 && dot != std::string::npos && dot != 0)
    result.resize(dot);
  // gfortran's procedures of modules: __training_MOD_step
  if (const auto module = result.find("_MOD_");
      status != 0 && module != std::string::npos && result.starts_with("__"))
    result = result.substr(2, module - 2) + "::" + result.substr(module + 5);
  return result;
}

bool search_everywhere = false;

/// One executable or library. Kept for the next rank: all ranks run the same ones.
class Module {
 public:
  explicit Module(const std::string& path) {
    read_segments(path);
    const Libdw& dw = Libdw::get();
    if (!dw.loaded) return;
    // In a rank by build id in the usual places, and nothing else: dwfl_standard_find_debuginfo would ask
    // debuginfod, and that brings libcurl and OpenSSL to life in somebody else's process.
    callbacks_.find_elf = dw.dwfl_build_id_find_elf;
    callbacks_.find_debuginfo =
        search_everywhere ? dw.dwfl_standard_find_debuginfo : dw.dwfl_build_id_find_debuginfo;
    dwfl_ = dw.dwfl_begin(&callbacks_);
    if (dwfl_ == nullptr) return;
    dw.dwfl_report_begin(dwfl_);
    module_ = dw.dwfl_report_elf(dwfl_, path.c_str(), path.c_str(), -1, 0, true);
    dw.dwfl_report_end(dwfl_, nullptr, nullptr);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ~Module() {
    if (dwfl_ != nullptr) Libdw::get().dwfl_end(dwfl_);
  }

  /// The frames of the call that returns to `frame.offset` in the file.
  void add_frames(Frame frame, std::vector<Frame>& frames) const {
    const Libdw& dw = Libdw::get();
    // The address is where the call returns to: the call itself stands before it.
    const std::uint64_t call = address_of(frame.offset) - 1;
    if (module_ == nullptr) {
      frames.push_back(frame);
      return;
    }
    GElf_Off offset = 0;
    GElf_Sym symbol;
    frame.function =
        demangle(dw.dwfl_module_addrinfo(module_, call, &offset, &symbol, nullptr, nullptr, nullptr));
    if (Dwfl_Line* line = dw.dwfl_module_getsrc(module_, call)) {
      const char* file = dw.dwfl_lineinfo(line, nullptr, &frame.line, nullptr, nullptr, nullptr);
      if (file != nullptr) frame.file = file;
    }
    if (frame.function.empty()) frame.build_id = build_id();
    add_inlined(call, frame, frames);
  }

 private:
  /// In hexadecimal; empty: it has none.
  std::string build_id() const {
    const Libdw& dw = Libdw::get();
    Dwarf_Addr bias = 0;
    dw.dwfl_module_getelf(module_, &bias);  // the id is known from then on
    const unsigned char* bits = nullptr;
    GElf_Addr address = 0;
    const int length = dw.dwfl_module_build_id(module_, &bits, &address);
    std::string text;
    for (int i = 0; i < length; ++i) text += fmt::format("{:02x}", bits[i]);
    return text;
  }

  /// The file's loaded parts: from offset to virtual address.
  void read_segments(const std::string& path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ElfW(Ehdr) header;
    if (!file || pread(file.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header)) return;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return;
    segments_.resize(header.e_phnum);
    const auto bytes = static_cast<ssize_t>(segments_.size() * sizeof(ElfW(Phdr)));
    if (pread(file.get(), segments_.data(), static_cast<std::size_t>(bytes),
              static_cast<off_t>(header.e_phoff)) != bytes) {
      segments_.clear();
    }
  }

  std::uint64_t address_of(std::uint64_t offset) const {
    for (const ElfW(Phdr) & segment : segments_) {
      const bool inside = segment.p_type == PT_LOAD && offset >= segment.p_offset &&
                          offset - segment.p_offset < segment.p_filesz;
      if (inside) return offset - segment.p_offset + segment.p_vaddr;
    }
    return offset;
  }

  /// Functions inlined at the address, innermost first, then the function they were inlined into.
  void add_inlined(std::uint64_t call, Frame frame, std::vector<Frame>& frames) const {
    const Libdw& dw = Libdw::get();
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = dw.dwfl_module_addrdie(module_, call, &bias);
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
      if (dw.dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine) continue;
      Frame inlined = frame;
      inlined.function = name_of_inlined(&scopes[i]);
      frames.push_back(inlined);
      find_caller(&scopes[i], frame);
    }
    std::free(scopes);
    frames.push_back(frame);
  }

  static std::string name_of_inlined(Dwarf_Die* die) {
    const Libdw& dw = Libdw::get();
    Dwarf_Attribute attribute;
    Dwarf_Attribute* linkage = dw.dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute);
    return demangle(linkage != nullptr ? dw.dwarf_formstring(linkage) : dw.dwarf_diename(die));
  }

  /// Where an inlined function was called from is the next frame's place.
  static void find_caller(Dwarf_Die* die, Frame& frame) {
    const Libdw& dw = Libdw::get();
    const auto number = [&](unsigned name) {
      Dwarf_Attribute attribute;
      Dwarf_Word value = 0;
      Dwarf_Attribute* found = dw.dwarf_attr(die, name, &attribute);
      return found != nullptr && dw.dwarf_formudata(found, &value) == 0 ? value : 0;
    };
    if (const Dwarf_Word line = number(DW_AT_call_line)) frame.line = static_cast<int>(line);
    Dwarf_Die unit;
    Dwarf_Files* files = nullptr;
    std::size_t count = 0;
    const Dwarf_Word index = number(DW_AT_call_file);
    if (index == 0 || dw.dwarf_diecu(die, &unit, nullptr, nullptr) == nullptr ||
        dw.dwarf_getsrcfiles(&unit, &files, &count) != 0 || index >= count) {
      return;
    }
    if (const char* file = dw.dwarf_filesrc(files, index, nullptr, nullptr)) frame.file = file;
  }

  std::vector<ElfW(Phdr)> segments_;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
};

const Module& module_for(const std::string& path) {
  // Never destroyed: used until the process ends.
  static auto* const modules = new std::map<std::string, std::unique_ptr<Module>>;
  auto& module = (*modules)[path];
  if (!module) module = std::make_unique<Module>(path);
  return *module;
}

bool is_library_inside(const Frame& frame) {
  const std::string_view name = base_name(frame.module);
  for (const char* prefix : {"libaccel.so", "libmpi", "libnccl", "libcuda.so", "libcudart", "libmpich",
                             "libopen-", "mca_", "libuc", "libpmix", "libevent"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

void search_debug_files_everywhere() { search_everywhere = true; }

std::vector<Frame> user_frames(const std::string& maps, const std::vector<std::uint64_t>& pcs) {
  const std::vector<Mapping> mappings = parse_maps(maps);
  std::vector<Frame> frames;
  bool inside_library = true;
  // What we have called ourselves, down to the kernel, is ours too.
  std::size_t first = 0;
  for (std::size_t i = 0; i < pcs.size(); ++i) {
    for (const Mapping& mapping : mappings) {
      const bool ours = pcs[i] >= mapping.begin && pcs[i] < mapping.end &&
                        base_name(mapping.path).starts_with("libaccel.so");
      if (ours) first = i;
    }
  }
  for (std::size_t i = first; i < pcs.size(); ++i) {
    const std::uint64_t pc = pcs[i];
    Frame frame;
    for (const Mapping& mapping : mappings) {
      if (pc < mapping.begin || pc >= mapping.end) continue;
      frame.module = mapping.path;
      frame.offset = pc - mapping.begin + mapping.offset;
    }
    inside_library = inside_library && is_library_inside(frame);
    if (inside_library) continue;
    if (frame.module.empty()) {
      frames.push_back(frame);
    } else {
      module_for(frame.module).add_frames(frame, frames);
    }
    if (frames.back().function == "main") break;
  }
  return frames;
}

std::string traceback_lines(const std::vector<Frame>& frames) {
  std::vector<std::string> lines;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (frame->folded != 0) {
      lines.push_back(fmt::format("  [{} frames of the Python interpreter]\n", frame->folded));
      continue;
    }
    std::string text;
    const std::string function = frame->function.empty() ? "??" : short_name(frame->function);
    const std::string build = frame->build_id.empty() ? "" : ", build id " + frame->build_id;
    if (!frame->file.empty()) {
      text += fmt::format("  File \"{}\", line {}, in {}\n", frame->file, frame->line, function);
      if (!frame->source.empty()) text += fmt::format("    {}\n", frame->source);
    } else if (frame->module.empty() && frame->function.empty()) {
      text += "  in ?? (code made at run time)\n";
    } else {
      text += fmt::format("  in {} ({}+{:#x}{})\n", function, base_name(frame->module), frame->offset, build);
    }
    lines.push_back(std::move(text));
  }
  // As Python does it.
  constexpr std::size_t kShown = 3;
  std::string result;
  for (std::size_t begin = 0; begin < lines.size();) {
    std::size_t end = begin;
    while (end < lines.size() && lines[end] == lines[begin]) ++end;
    for (std::size_t i = begin; i < std::min(end, begin + kShown); ++i) result += lines[i];
    if (end - begin > kShown)
      result += fmt::format("  [Previous line repeated {} more times]\n", end - begin - kShown);
    begin = end;
  }
  return result;
}

}  // namespace accel
