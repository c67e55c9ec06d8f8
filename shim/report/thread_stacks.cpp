#include "report/thread_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "record/base_name.h"
#include "report/names.h"
#include "report/python_frames.h"
#include "report/unwind_copy.h"

namespace accel {
namespace {

const BlockedCall* call_of(const ProcessEvidence& process, std::int32_t tid) {
  for (const BlockedCall& blocked : process.blocked) {
    if (static_cast<std::int32_t>(blocked.tid) == tid) return &blocked;
  }
  return nullptr;
}

const PythonThread* python_thread(const std::vector<PythonThread>& threads, const ProcessEvidence& process,
                                  std::int32_t tid) {
  for (const PythonThread& thread : threads) {
    const bool only = threads.size() == 1 && thread.tid == 0;
    if (thread.tid == tid || (only && tid == process.pid)) return &thread;
  }
  return nullptr;
}

/// "void step<int>" is step<int>: a template's name comes with what it returns.
std::string without_result(const std::string& name) {
  if (name.find("operator") != std::string::npos) return name;
  int depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>') ++depth;
    if (name[i] == '<') --depth;
    if (name[i] == ' ' && depth == 0) return name.substr(i + 1);
  }
  return name;
}

}  // namespace

std::vector<std::uint64_t> addresses_of(const RecordReader& reader, const ProcessEvidence& process,
                                        const StackRecord& stack) {
  if (stack.depth == 1) {
    if (const auto copy = reader.stack_copy(stack)) return unwind_copy(reader.maps(), process.pid, *copy);
  }
  return {stack.pcs, stack.pcs + stack.depth};
}

std::vector<Frame> python_frames_of(const std::string& text, const ProcessEvidence& process,
                                    std::int32_t tid) {
  const std::vector<PythonThread> threads = parse_python(text);
  const PythonThread* thread = python_thread(threads, process, tid);
  return thread != nullptr ? thread->frames : std::vector<Frame>{};
}

std::vector<ThreadStack> thread_stacks(const RecordReader& reader, const ProcessEvidence& process,
                                       std::uint32_t request) {
  std::vector<ThreadStack> result;
  const std::string maps = reader.maps();
  const std::vector<PythonThread> python = parse_python(reader.python(request).value_or(""));
  const auto add = [&](std::int32_t tid, char state, const std::vector<std::uint64_t>& addresses) {
    ThreadStack stack;
    stack.tid = tid;
    stack.state = state;
    stack.frames = user_frames(maps, addresses);
    if (process.python) {
      const PythonThread* thread = python_thread(python, process, tid);
      if (thread != nullptr) stack.name = thread->name;
      stack.frames = with_python(stack.frames, thread != nullptr ? thread->frames : std::vector<Frame>{});
    }
    if (const BlockedCall* call = call_of(process, tid)) stack.call = traits(call->record.function).name;
    result.push_back(std::move(stack));
  };
  for (const StackRecord& stack : reader.stacks(request))
    add(static_cast<std::int32_t>(stack.tid), static_cast<char>(stack.state),
        addresses_of(reader, process, stack));
  for (const BlockedCall& call : process.blocked) {
    const auto tid = static_cast<std::int32_t>(call.tid);
    const bool there = std::any_of(result.begin(), result.end(), [&](const ThreadStack& stack) {
      return stack.tid == tid && !stack.frames.empty();
    });
    if (!there) add(tid, 0, reader.site(call.record).addresses);
  }
  std::stable_sort(result.begin(), result.end(), [&](const ThreadStack& a, const ThreadStack& b) {
    return (a.tid == process.pid) > (b.tid == process.pid);
  });
  return result;
}

nlohmann::json frames_json(const std::vector<Frame>& frames) {
  nlohmann::json result = nlohmann::json::array();
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (frame->folded != 0) {
      result.push_back({{"interpreter_frames", frame->folded}});
      continue;
    }
    nlohmann::json one = {
        {"function", frame->function}, {"module", frame->module}, {"offset", frame->offset}};
    if (!frame->source.empty()) one["source"] = frame->source;
    if (!frame->build_id.empty()) one["build_id"] = frame->build_id;
    if (!frame->file.empty()) {
      one["file"] = frame->file;
      one["line"] = frame->line;
    }
    result.push_back(std::move(one));
  }
  return result;
}

namespace {

std::string label_of(const Frame& frame) {
  if (frame.folded != 0) return "[Python]";
  if (frame.module.empty() && frame.function.empty()) return "[code made at run time]";
  if (frame.function.empty()) return fmt::format("{}+{:#x}", base_name(frame.module), frame.offset);
  const std::string name = short_name(frame.function);
  const std::string function = without_result(name.substr(0, name.find('(')));
  const std::string& shown = function.empty() ? name : function;
  if (frame.file.empty()) return shown;
  return fmt::format("{} ({}:{})", shown, base_name(frame.file), frame.line);
}

}  // namespace

std::vector<std::string> labels_of(const std::vector<Frame>& frames) {
  std::vector<std::string> labels;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) labels.push_back(label_of(*frame));
  for (std::size_t begin = 0; begin < labels.size(); ++begin) {
    std::size_t end = begin;
    while (end < labels.size() && labels[end] == labels[begin]) ++end;
    if (end - begin < 3) continue;
    labels[begin] += fmt::format(" ×{}", end - begin);
    labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                 labels.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return labels;
}

}  // namespace accel
