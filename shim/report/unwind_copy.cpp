#include "report/unwind_copy.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "record/file_descriptor.h"
#include "report/libdw.h"
#include "report/mappings.h"

namespace accel {
namespace {

/// DWARF's numbers on x86-64.
constexpr int kFramePointer = 6;
constexpr int kStackPointer = 7;
/// How many frame pointers to try, and how many frames to believe.
constexpr int kCandidates = 200;
constexpr std::size_t kDeepest = 256;

/// Of a direct call (E8 rel32), from the file that the code comes from.
std::optional<std::uint64_t> target_of_call_before(std::uint64_t address, const std::vector<Mapping>& code) {
  constexpr std::size_t kLength = 5;
  for (const Mapping& mapping : code) {
    if (address < mapping.begin + kLength || address >= mapping.end) continue;
    unsigned char call[kLength];
    const FileDescriptor file(open(mapping.path.c_str(), O_RDONLY | O_CLOEXEC));
    const std::uint64_t place = address - kLength - mapping.begin + mapping.offset;
    if (!file || pread(file.get(), call, kLength, static_cast<off_t>(place)) != kLength || call[0] != 0xe8)
      return std::nullopt;
    std::int32_t distance = 0;
    std::memcpy(&distance, call + 1, sizeof distance);
    return address + static_cast<std::uint64_t>(static_cast<std::int64_t>(distance));
  }
  return std::nullopt;
}

class Unwinding {
 public:
  Unwinding(const std::string& maps, std::int32_t pid, const StackCopy& copy) : copy_(copy) {
    const Libdw& dw = Libdw::get();
    std::string text = maps;
    if (!dw.loaded || text.empty()) return;
    callbacks_.find_elf = dw.dwfl_linux_proc_find_elf;
    callbacks_.find_debuginfo = dw.dwfl_build_id_find_debuginfo;
    dwfl_ = dw.dwfl_begin(&callbacks_);
    std::FILE* const lines = fmemopen(text.data(), text.size(), "r");
    if (dwfl_ == nullptr || lines == nullptr) return;
    dw.dwfl_report_begin(dwfl_);
    const int error = dw.dwfl_linux_proc_maps_report(dwfl_, lines);
    std::fclose(lines);
    dw.dwfl_report_end(dwfl_, nullptr, nullptr);
    ready_ = error == 0 && dw.dwfl_attach_state(dwfl_, nullptr, pid, &kState, this);
    pid_ = pid;
  }
  Unwinding(const Unwinding&) = delete;
  Unwinding& operator=(const Unwinding&) = delete;
  ~Unwinding() {
    if (dwfl_ != nullptr) Libdw::get().dwfl_end(dwfl_);
  }

  /// How well frames fit to what called them: what earlier calls have left on the stack also looks like
  /// frames, but a call instruction that names another function contradicts it.
  int fit_of(const std::vector<std::uint64_t>& pcs, const std::vector<Mapping>& code) const {
    constexpr int kContradiction = 100;
    int fit = 0;
    for (std::size_t i = 0; i + 1 < pcs.size(); ++i) {
      const auto target = target_of_call_before(pcs[i + 1], code);
      const auto own = function_at(pcs[i] - 1);
      if (!target || !own) continue;
      if (*target == *own) {
        ++fit;
      } else if (function_at(*target) == target) {  // not a way around by the procedure linkage table
        fit -= kContradiction;
      }
    }
    return fit;
  }

  /// Whether the frames lead to the outermost function.
  bool run(std::optional<std::uint64_t> frame_pointer, std::vector<std::uint64_t>& pcs) {
    if (!ready_) return false;
    frame_pointer_ = frame_pointer;
    pcs_.clear();
    Libdw::get().dwfl_getthread_frames(dwfl_, pid_, take_frame, this);
    pcs = pcs_;
    return std::any_of(pcs.begin(), pcs.end(), [this](std::uint64_t pc) { return is_outermost(pc); });
  }

 private:
  /// libdw's own word for it is of no use: where a register is missing it calls a frame the last, too.
  bool is_outermost(std::uint64_t pc) const {
    const Libdw& dw = Libdw::get();
    Dwfl_Module* module = dw.dwfl_addrmodule(dwfl_, pc - 1);
    const char* name = module != nullptr ? dw.dwfl_module_addrname(module, pc - 1) : nullptr;
    if (name == nullptr) return false;
    const std::string_view function(name);
    return function.starts_with("__libc_start_main") || function == "start_thread" || function == "clone" ||
           function.ends_with("clone3") || function == "_start";
  }

  /// Where the function begins that an address lies in, as far as symbols tell.
  std::optional<std::uint64_t> function_at(std::uint64_t address) const {
    const Libdw& dw = Libdw::get();
    Dwfl_Module* module = dw.dwfl_addrmodule(dwfl_, address);
    GElf_Off offset = 0;
    GElf_Sym symbol;
    if (module == nullptr ||
        dw.dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr) == nullptr)
      return std::nullopt;
    return address - offset;
  }

  static pid_t next_thread(Dwfl*, void* self, void** thread) {
    auto& own = *static_cast<Unwinding*>(self);
    if (*thread != nullptr) return 0;
    *thread = self;
    return own.pid_;
  }
  static bool read_memory(Dwfl*, Dwarf_Addr address, Dwarf_Word* result, void* self) {
    const StackCopy& copy = static_cast<Unwinding*>(self)->copy_;
    const std::uint64_t offset = address - copy.sp;
    if (address < copy.sp || copy.bytes < sizeof *result || offset > copy.bytes - sizeof *result)
      return false;
    std::memcpy(result, copy.memory + offset, sizeof *result);
    return true;
  }
  static bool set_registers(Dwfl_Thread* thread, void* self) {
    const auto& own = *static_cast<Unwinding*>(self);
    const Libdw& dw = Libdw::get();
    const Dwarf_Word stack_pointer = own.copy_.sp;
    if (!dw.dwfl_thread_state_registers(thread, kStackPointer, 1, &stack_pointer)) return false;
    const Dwarf_Word frame_pointer = own.frame_pointer_.value_or(0);
    if (own.frame_pointer_ && !dw.dwfl_thread_state_registers(thread, kFramePointer, 1, &frame_pointer))
      return false;
    dw.dwfl_thread_state_register_pc(thread, own.copy_.pc);
    return true;
  }
  static int take_frame(Dwfl_Frame* frame, void* self) {
    auto& own = *static_cast<Unwinding*>(self);
    Dwarf_Addr pc = 0;
    bool exact = false;
    if (!Libdw::get().dwfl_frame_pc(frame, &pc, &exact) || own.pcs_.size() == kDeepest) return DWARF_CB_ABORT;
    own.pcs_.push_back(pc);
    return DWARF_CB_OK;
  }

  static constexpr Dwfl_Thread_Callbacks kState = {next_thread,   nullptr, read_memory,
                                                   set_registers, nullptr, nullptr};

  const StackCopy& copy_;
  std::int32_t pid_ = 0;
  std::optional<std::uint64_t> frame_pointer_;
  std::vector<std::uint64_t> pcs_;
  Dwfl_Callbacks callbacks_{};
  Dwfl* dwfl_ = nullptr;
  bool ready_ = false;
};

}  // namespace

std::vector<std::uint64_t> unwind_copy(const std::string& maps, std::int32_t pid, const StackCopy& copy) {
  const std::vector<std::uint64_t> innermost{copy.pc};
#if !defined(__x86_64__)
  (void)maps;
  (void)pid;
  return innermost;
#endif
  Unwinding unwinding(maps, pid, copy);
  std::vector<std::uint64_t> best;
  if (unwinding.run(std::nullopt, best)) return best;
  std::vector<Mapping> code = parse_maps(maps);
  std::erase_if(code, [](const Mapping& mapping) { return !mapping.executable; });
  const auto is_code = [&](std::uint64_t address) {
    for (const Mapping& mapping : code) {
      if (address >= mapping.begin && address < mapping.end) return true;
    }
    return false;
  };
  const auto word = [&](std::uint64_t offset) {
    std::uint64_t value = 0;
    std::memcpy(&value, copy.memory + offset, sizeof value);
    return value;
  };
  // A frame pointer points at what the caller had in that register, with a return address behind it.
  int tried = 0;
  std::optional<int> best_fit;
  for (std::uint64_t at = 0; at + 16 <= copy.bytes && tried < kCandidates; at += 8) {
    if (!is_code(word(at + 8))) continue;
    ++tried;
    std::vector<std::uint64_t> pcs;
    if (!unwinding.run(copy.sp + at, pcs)) continue;
    const int fit = unwinding.fit_of(pcs, code);
    if (fit >= 0 && (!best_fit || fit > *best_fit)) {
      best_fit = fit;
      best = pcs;
    }
  }
  return best.empty() ? innermost : best;
}

}  // namespace accel
