#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "judge/judge.h"
#include "record/base_name.h"
#include "report/advice.h"
#include "report/python_frames.h"
#include "report/rank_set.h"
#include "report/shape.h"
#include "report/stack_tree.h"
#include "report/symbols.h"
#include "report/thread_stacks.h"

namespace accel {
namespace {

using nlohmann::json;

std::string join(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::vector<int> ranks_of(const Verdict& verdict, bool blamed) {
  std::vector<int> ranks;
  for (const Party& party : verdict.parties) {
    if (party.blamed == blamed) ranks.push_back(party.world_rank);
  }
  return ranks;
}

std::vector<int> waiting_ranks(const Verdict& verdict) {
  std::vector<int> ranks;
  for (const Party& party : verdict.parties) {
    if (party.inside && !party.blamed && party.call && party.call->function == verdict.function) {
      ranks.push_back(party.world_rank);
    }
  }
  return ranks;
}

std::string processes(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "process " : "processes ") + rank_set(ranks);
}

const char* are(const std::vector<int>& ranks) { return ranks.size() == 1 ? "is" : "are"; }
const char* wait(const std::vector<int>& ranks) { return ranks.size() == 1 ? "waits" : "wait"; }

std::string shape(const Party& party) { return shape(*party.call, party.datatype, party.counts); }

bool kinds_differ(const Verdict& verdict) {
  const Party* first = nullptr;
  for (const Party& party : verdict.parties) {
    if (!party.call) continue;
    if (first == nullptr) first = &party;
    if (traits(party.call->function).kind != traits(first->call->function).kind) return true;
  }
  return false;
}

std::string party_text(const Party& party, bool with_function, bool with_progress) {
  if (!party.call || (!with_progress && !party.state.empty())) return party.state;
  std::vector<std::string> words;
  if (with_function) words.emplace_back(traits(party.call->function).name);
  if (const std::string text = shape(party); !text.empty()) words.push_back(text);
  std::string text = join(words, "  ");
  if (text.empty()) text = traits(party.call->function).name;
  if (with_progress && !party.state.empty()) return party.state;
  if (with_progress && party.inside) return "waits in " + text;
  return text;
}

/// Lines of equal text folded to one, in order of their first rank.
std::string party_lines(const Verdict& verdict) {
  const bool mismatch = verdict.kind == VerdictKind::Mismatch || verdict.kind == VerdictKind::Datatypes;
  const bool with_function = !mismatch || kinds_differ(verdict) || !traits(verdict.function).numbered;
  struct Line {
    std::string text;
    bool blamed;
    std::vector<int> ranks;
  };
  std::vector<Line> lines;
  for (const Party& party : verdict.parties) {
    const std::string text = party_text(party, with_function, !mismatch);
    const auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& line) {
      return line.text == text && line.blamed == party.blamed;
    });
    if (same != lines.end()) {
      same->ranks.push_back(party.world_rank);
    } else {
      lines.push_back({text, party.blamed, {party.world_rank}});
    }
  }
  const char* mark = "";
  switch (verdict.kind) {
    case VerdictKind::Mismatch:
      mark = "<- differs";
      break;
    case VerdictKind::EarlyExit:
      mark = "<- has left";
      break;
    case VerdictKind::OutOfMemory:
      mark = "<- out of memory";
      break;
    case VerdictKind::Crash:
      mark = "<- crashed";
      break;
    case VerdictKind::Deadlock:
      mark = "<- waited for";
      break;
    case VerdictKind::Datatypes:
      mark = "<- differs";
      break;
    case VerdictKind::TimeOut:
    case VerdictKind::Late:
      mark = "<- missing";
      break;
  }
  std::size_t width = 0;
  for (const Line& line : lines)
    width = std::max(width, fmt::format("Process {}: {}", rank_set(line.ranks), line.text).size());
  std::string result;
  for (const Line& line : lines) {
    const std::string text = fmt::format("Process {}: {}", rank_set(line.ranks), line.text);
    if (line.blamed) {
      result += fmt::format("  - {:<{}}  {}\n", text, width, mark);
    } else {
      result += fmt::format("  - {}\n", text);
    }
  }
  return result;
}

std::string operation_line(const Verdict& verdict) {
  std::string text = fmt::format("Operation: {}", traits(verdict.function).name);
  if (verdict.communicator == 0) return text + "\n";
  const std::string name = communicator_name(verdict.communicator);
  if (verdict.sequence != 0) {
    text += fmt::format(" (#{} on communicator {}, {} ranks)", verdict.sequence, name, verdict.size);
  } else {
    text += fmt::format(" (on communicator {}, {} ranks)", name, verdict.size);
  }
  return text + "\n";
}

/// The process that the report is about: the first blamed, else the first.
const Party& subject(const Verdict& verdict) {
  for (const Party& party : verdict.parties) {
    if (party.blamed) return party;
  }
  return verdict.parties.front();
}

/// The thread that is in the party's call, else the main thread.
std::int32_t thread_of(const Party& party, const ProcessEvidence& process) {
  for (const BlockedCall& blocked : process.blocked) {
    if (party.call && blocked.record.sequence == party.call->sequence &&
        blocked.record.function == party.call->function)
      return static_cast<std::int32_t>(blocked.tid);
  }
  return process.pid;
}

/// A party's stack as symbolized frames.
struct Traceback {
  std::vector<Frame> frames;
  bool now = false;  ///< not of its call but of where it is since: an interpreter tells of no other time
};

struct Tracebacks {
  std::vector<Traceback> of;         ///< of each party
  std::vector<int> without_python;   ///< world ranks whose interpreter has not answered
  std::vector<int> uninterruptible;  ///< whose main thread no signal wakes
};

Tracebacks stacks_of(const Verdict& verdict, const Evidence& evidence, const Observer& observer,
                     std::uint32_t stack_request) {
  Tracebacks result;
  for (const Party& party : verdict.parties) {
    const RecordReader& reader = observer.reader(party.process);
    std::vector<std::uint64_t> pcs = party.site.addresses;
    if (pcs.empty() && stack_request != 0) {
      // No call to show: where its main thread was when asked.
      for (const StackRecord& stack : reader.stacks(stack_request)) {
        const bool main_thread =
            static_cast<std::int32_t>(stack.tid) == evidence.processes[party.process].pid;
        if (!main_thread) continue;
        pcs = addresses_of(reader, evidence.processes[party.process], stack);
        if (stack.state == 'D') result.uninterruptible.push_back(party.world_rank);
      }
    }
    const std::vector<Frame> native = pcs.empty() ? std::vector<Frame>{} : user_frames(reader.maps(), pcs);
    const ProcessEvidence& process = evidence.processes[party.process];
    if (!process.python) {
      result.of.push_back({native});
      continue;
    }
    std::vector<PythonThread> at_the_call = parse_python(party.site.python);
    std::vector<Frame> python;
    if (!at_the_call.empty()) {
      python = std::move(at_the_call.front().frames);
    } else if (stack_request != 0 && !process.has_left()) {
      const std::optional<std::string> text = reader.python(stack_request);
      if (!text) result.without_python.push_back(party.world_rank);
      python = python_frames_of(text.value_or(""), process, thread_of(party, process));
    }
    const bool gone_on = !party.inside && !party.site.addresses.empty() && party.site.python.empty();
    const bool now = gone_on && !python.empty();
    result.of.push_back({with_python(now ? std::vector<Frame>{} : native, python), now});
  }
  return result;
}

std::string last_line(const Party& party) {
  if (!party.call || party.call->function == Function::None) return {};
  return fmt::format("  in {}\n", traits(party.call->function).name);
}

/// What the blamed process had called: nothing that its call records show.
std::string last_line(const Verdict& verdict, const Party& party) {
  if (verdict.memory && party.blamed) return fmt::format("  in {}\n", name_of(verdict.memory->function));
  return last_line(party);
}

std::string traceback_text(const Verdict& verdict, const Party& party, const Traceback& traceback) {
  const std::string lines = traceback_lines(traceback.frames);
  if (!traceback.now) return lines + last_line(verdict, party);
  return lines +
         fmt::format("  [it has gone on to here from its {}; ACCEL_STACKS=sites shows the call itself]\n",
                     traits(party.call->function).name);
}

/// From this many different ones on a tree shows more than a list.
constexpr std::size_t kManyStacks = 4;

std::string tree_of_others(const Verdict& verdict, const std::vector<Traceback>& stacks) {
  std::vector<RankStack> others;
  std::vector<int> ranks;
  for (std::size_t i = 0; i < verdict.parties.size(); ++i) {
    const Party& party = verdict.parties[i];
    if (&party == &subject(verdict) || stacks[i].frames.empty()) continue;
    RankStack stack{party.world_rank, labels_of(stacks[i].frames)};
    if (party.call && !stacks[i].now) stack.frames.emplace_back(traits(party.call->function).name);
    others.push_back(std::move(stack));
    ranks.push_back(party.world_rank);
  }
  return fmt::format("\nStacks of {} as a tree:\n{}", processes(ranks), stack_tree(others));
}

/// The other processes' stacks, equal ones once.
std::string other_tracebacks(const Verdict& verdict, const std::vector<Traceback>& stacks) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t i = 0; i < verdict.parties.size(); ++i) {
    const Party& party = verdict.parties[i];
    if (&party == &subject(verdict) || stacks[i].frames.empty()) continue;
    const std::string text = traceback_text(verdict, party, stacks[i]);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == text; });
    if (same != groups.end()) {
      same->second.push_back(party.world_rank);
    } else {
      groups.push_back({text, {party.world_rank}});
    }
  }
  if (groups.size() >= kManyStacks) return tree_of_others(verdict, stacks);
  std::string result;
  for (const auto& [text, ranks] : groups) {
    result += fmt::format("\nTraceback of {} (most recent call last):\n{}", processes(ranks), text);
  }
  return result;
}

json party_json(const Party& party, const ProcessEvidence& process, const std::vector<Frame>& frames) {
  json result = {{"rank", party.world_rank},   {"host", process.host},   {"pid", process.pid},
                 {"program", process.program}, {"blamed", party.blamed}, {"traceback", frames_json(frames)}};
  if (!party.state.empty()) result["state"] = party.state;
  if (!party.call) return result;
  const FunctionTraits& what = traits(party.call->function);
  json call = {{"function", what.name}, {"returned", !party.inside}};
  if (what.data) call["datatype"] = party.datatype.name;
  if (what.data && !what.vector) call["count"] = party.call->count;
  if (what.vector) call["counts"] = party.counts;
  if (what.reduces && party.call->op != 0) call["op"] = name_of_op(party.call->op);
  if (what.rooted) call["root"] = party.call->root;
  result["call"] = std::move(call);
  return result;
}

std::string list_fields(const Verdict& verdict) {
  std::vector<std::string> names;
  for (const Field field : verdict.fields) names.emplace_back(name_of(field));
  return join(names, ", ");
}

}  // namespace

namespace {

std::string out_of_memory_line(const Verdict& verdict) {
  const MemoryEpisode& memory = *verdict.memory;
  const int rank = subject(verdict).world_rank;
  const auto kind = static_cast<MemoryKind>(memory.kind);
  const auto used = static_cast<std::int64_t>(memory.total) - static_cast<std::int64_t>(memory.free);
  const std::string what =
      kind == MemoryKind::Pinned ? fmt::format("Out of pinned host memory. Process {} tried to allocate {}.",
                                               rank, size_text(static_cast<std::int64_t>(memory.bytes)))
      : kind == MemoryKind::Count_
          ? fmt::format("CUDA out of memory. Process {} could not get what {} needs on GPU {}.", rank,
                        name_of(memory.function), memory.device)
          : fmt::format("CUDA out of memory. Process {} tried to allocate {} on GPU {}.", rank,
                        size_text(static_cast<std::int64_t>(memory.bytes)), memory.device);
  if (memory.total == 0) return "accel.OutOfMemoryError: " + what;
  return fmt::format(
      "accel.OutOfMemoryError: {} The GPU has {}, of which {} are free; this process holds {}, others and "
      "the driver {}.",
      what, size_text(static_cast<std::int64_t>(memory.total)),
      size_text(static_cast<std::int64_t>(memory.free)), size_text(memory.own),
      size_text(std::max<std::int64_t>(used - memory.own - memory.idle, 0)));
}

}  // namespace

std::string error_line(const Verdict& verdict) {
  const std::vector<int> blamed = ranks_of(verdict, true);
  const auto name = traits(verdict.function).name;
  switch (verdict.kind) {
    case VerdictKind::Mismatch: {
      const bool shapes = std::all_of(verdict.fields.begin(), verdict.fields.end(), [](Field field) {
        return field == Field::Count || field == Field::Peers;
      });
      if (shapes) {
        return "accel.DistributedOperationError: Cannot apply desired operation due to shape mismatches. All "
               "shapes "
               "across devices must be valid.";
      }
      if (verdict.fields.front() == Field::Size) {
        return "accel.DistributedOperationError: Cannot create the communicator: the processes disagree on "
               "its number "
               "of ranks.";
      }
      if (verdict.fields.front() == Field::UniqueId) {
        return "accel.DistributedOperationError: Cannot create the communicator: its ncclUniqueId has been "
               "used before. "
               "Each communicator needs one of its own.";
      }
      if (verdict.fields.front() == Field::Rank) {
        return fmt::format(
            "accel.DistributedOperationError: Cannot create the communicator: {} claim the same rank.",
            processes(blamed));
      }
      if (verdict.fields.front() == Field::Kind) {
        return "accel.DistributedOperationError: Cannot apply desired operation due to kind mismatches. All "
               "processes "
               "must call the same collectives in the same order.";
      }
      const std::string fields = list_fields(verdict);
      return fmt::format(
          "accel.DistributedOperationError: Cannot apply desired operation due to {} mismatches. The {} must "
          "be the "
          "same on all processes.",
          fields, fields);
    }
    case VerdictKind::EarlyExit: {
      const Party& gone = subject(verdict);
      const std::vector<int> waiting = waiting_ranks(verdict);
      const std::string state = gone.state.empty() ? "has left" : gone.state;
      return fmt::format("accel.EarlyExitError: process {} {} while {} {} for it in {}.", gone.world_rank,
                         state, waiting.empty() ? "others" : processes(waiting),
                         waiting.empty() ? "wait" : wait(waiting), name);
    }
    case VerdictKind::OutOfMemory:
      return out_of_memory_line(verdict);
    case VerdictKind::Crash:
      return fmt::format("accel.CrashError: process {} {}.", subject(verdict).world_rank,
                         subject(verdict).state);
    case VerdictKind::Deadlock:
      return verdict.waited_ns == 0
                 ? fmt::format("accel.DeadlockError: {} wait for each other in a circle.", processes(blamed))
                 : fmt::format(
                       "accel.DeadlockError: all processes wait for each other; {} {} missing in {}, which "
                       "was called first.",
                       processes(blamed), are(blamed), name);
    case VerdictKind::Datatypes:
      if (!verdict.fields.empty()) {
        return fmt::format(
            "accel.ConfigurationWarning: the processes pass different configurations (ncclCollConfig_t) to "
            "{}; NCCL wants "
            "the same on all.",
            name);
      }
      return fmt::format(
          "accel.DatatypeWarning: the processes move the same number of bytes in {}, but call them by "
          "different datatypes.",
          name);
    case VerdictKind::TimeOut:
    case VerdictKind::Late: {
      const std::vector<int> waiting = waiting_ranks(verdict);
      const std::vector<int> absent(verdict.absent.begin(), verdict.absent.end());
      const bool makes_it = verdict.function == Function::NcclCommInitRank;
      const std::string ranks =
          fmt::format("rank{} {} of the communicator", absent.size() == 1 ? "" : "s", rank_set(absent));
      std::string who = blamed.empty() ? "" : fmt::format("{} {} missing", processes(blamed), are(blamed));
      if (!absent.empty() && makes_it) {
        who = fmt::format("{} {} not called it", ranks, absent.size() == 1 ? "has" : "have");
      } else if (!absent.empty()) {
        who += fmt::format("{}nothing is known of {}", who.empty() ? "" : "; ", ranks);
      } else if (blamed.empty()) {
        who = "all have made the call";
      }
      return fmt::format("{}: {} {} in {} for {:.1f} s; {}.",
                         verdict.kind == VerdictKind::TimeOut ? "accel.TimeoutError" : "accel.LateWarning",
                         processes(waiting), waiting.size() == 1 ? "has waited" : "have waited", name,
                         static_cast<double>(verdict.waited_ns) / 1e9, who);
    }
  }
  return {};
}

namespace {

/// Which of NVIDIA's libraries a stack leads through: users see its own error and not the shortage behind it.
std::string library_in(const std::vector<Frame>& frames) {
  constexpr std::pair<const char*, const char*> kLibraries[] = {{"libcublas", "cuBLAS"},
                                                                {"libcudnn", "cuDNN"},
                                                                {"libcufft", "cuFFT"},
                                                                {"libcusparse", "cuSPARSE"},
                                                                {"libcusolver", "cuSOLVER"}};
  for (const Frame& frame : frames) {
    const std::string_view name = base_name(frame.module);
    for (const auto& [beginning, library] : kLibraries) {
      if (name.starts_with(beginning)) return library;
    }
  }
  return {};
}

}  // namespace

Report make_report(const Verdict& verdict, const Evidence& evidence, const Observer& observer,
                   std::uint32_t stack_request) {
  const Party& about = subject(verdict);
  const ProcessEvidence& process = evidence.processes[about.process];
  const auto [stacks, without_python, uninterruptible] =
      stacks_of(verdict, evidence, observer, stack_request);
  const std::size_t index = static_cast<std::size_t>(&about - verdict.parties.data());

  std::string text = fmt::format("[accel] rank {} of {} on {} (pid {}): {}\n\n", about.world_rank,
                                 process.world_size, process.host, process.pid, title(verdict.kind));
  if (!stacks[index].frames.empty())
    text += "Traceback (most recent call last):\n" + traceback_text(verdict, about, stacks[index]);
  text += error_line(verdict) + "\n\n";
  if (verdict.function != Function::None) text += operation_line(verdict);
  if (verdict.kind == VerdictKind::Mismatch && !verdict.fields.empty()) {
    text += fmt::format("Differs in: {}\n", list_fields(verdict));
  }
  const bool shapes = verdict.kind == VerdictKind::Mismatch && !kinds_differ(verdict);
  text += (shapes ? "Input shapes:\n" : "Processes:\n") + party_lines(verdict);
  std::vector<std::string> details = verdict.details;
  if (const std::string library = verdict.memory ? library_in(stacks[index].frames) : ""; !library.empty())
    details.push_back(fmt::format("it was {} that asked for the memory", library));
  if (!uninterruptible.empty()) {
    details.push_back(
        fmt::format("{} {} in uninterruptible sleep: the kernel waits for a device or a file system",
                    processes(uninterruptible), are(uninterruptible)));
  }
  if (!without_python.empty()) {
    details.push_back(
        fmt::format("the interpreter of {} did not let go of the GIL in time: native frames only",
                    processes(without_python)));
  }
  for (const std::string& detail : details) text += "  " + detail + "\n";
  text += other_tracebacks(verdict, stacks);
  const std::string what_to_do = advice(verdict, evidence);
  if (!what_to_do.empty())
    text += fmt::format("\nWhat to do: {}\nMore: README.md#{}\n", what_to_do, section_of(verdict));

  std::string operation(traits(verdict.function).name);
  if (verdict.memory) operation = std::string(name_of(verdict.memory->function));
  json object = {{"version", 1},
                 {"verdict", title(verdict.kind)},
                 {"exit_status", exit_status(verdict.kind)},
                 {"error", error_line(verdict)},
                 {"operation", operation},
                 {"communicator", fmt::format("{:016x}", verdict.communicator)},
                 {"sequence", verdict.sequence},
                 {"communicator_size", verdict.size},
                 {"details", details},
                 {"advice", what_to_do},
                 {"section", section_of(verdict)},
                 {"processes", json::array()}};
  for (const Field field : verdict.fields) object["differs_in"].push_back(name_of(field));
  if (verdict.memory) {
    const MemoryEpisode& memory = *verdict.memory;
    object["memory"] = {{"device", memory.device},     {"asked", memory.bytes},
                        {"free", memory.free},         {"total", memory.total},
                        {"own", memory.own},           {"idle_in_pool", memory.idle},
                        {"attempts", memory.attempts}, {"impossible", memory.impossible != 0}};
  }
  for (std::size_t i = 0; i < verdict.parties.size(); ++i) {
    object["processes"].push_back(
        party_json(verdict.parties[i], evidence.processes[verdict.parties[i].process], stacks[i].frames));
  }
  return {text, object.dump(-1, ' ', false, json::error_handler_t::replace)};
}

std::string make_obituary(const Evidence& evidence) {
  std::vector<const ProcessEvidence*> processes;
  for (const ProcessEvidence& process : evidence.processes) {
    if (process.world_rank >= 0) processes.push_back(&process);
  }
  if (processes.empty()) return {};
  std::stable_sort(processes.begin(), processes.end(), [](const auto* a, const auto* b) {
    return std::pair(a->world_key, a->world_rank) < std::pair(b->world_key, b->world_rank);
  });
  std::string text = "[accel] the job is gone without a verdict; what its ranks did last:\n";
  for (const ProcessEvidence* process : processes) {
    std::string last = describe_absence(*process);
    if (!process->blocked.empty()) {
      Party party;
      party.call = process->blocked.front().record;
      party.datatype = process->history->datatype(party.call->datatype);
      const std::string text_of_call = shape(party);
      last = fmt::format("inside {}{}{}", traits(party.call->function).name, text_of_call.empty() ? "" : "  ",
                         text_of_call);
    }
    text += fmt::format("  - Process {}: {}, {}\n", process->world_rank, describe_departure(*process), last);
  }
  return text;
}

std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace accel
