#include "report/python_frames.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "record/base_name.h"

namespace accel {
namespace {

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields{""};
  for (const char c : line) {
    // A source line may hold more tabs.
    if (c == '\t' && fields.size() < 5) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

/// Runs a Python function that C has called, and from 3.11 on those that it calls.
bool evaluates(const Frame& frame) {
  return frame.function.find("_PyEval_EvalFrameDefault") != std::string::npos;
}

bool is_interpreter(const Frame& frame) {
  const std::string_view name = base_name(frame.module);
  return name.starts_with("python") || name.starts_with("libpython") || evaluates(frame);
}

/// How the C library starts a program or a thread, or what is static in it: of no interest.
bool is_start_up(const Frame& frame) {
  constexpr std::string_view kNames[] = {
      "_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "__clone",
      "clone3", "__clone3"};
  if (frame.function.empty()) return base_name(frame.module).starts_with("libc.so");
  return std::find(std::begin(kNames), std::end(kNames), frame.function) != std::end(kNames);
}

/// What Cython, ctypes and other binders put between the interpreter and the library that is called.
bool is_binding(const Frame& frame) {
  const bool extension = frame.module.find(".cpython-") != std::string::npos;
  return frame.function.starts_with("__pyx_") || (extension && frame.function.empty()) ||
         frame.module.find("/libffi.so") != std::string::npos;
}

}  // namespace

std::vector<PythonThread> parse_python(const std::string& text) {
  std::vector<PythonThread> threads;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields[0] == "T" && fields.size() >= 3) {
      threads.push_back({static_cast<std::int32_t>(std::atoi(fields[1].c_str())), fields[2], {}});
    } else if ((fields[0] == "F" || fields[0] == "E") && fields.size() == 5 && !threads.empty()) {
      Frame frame;
      frame.file = fields[1];
      frame.line = std::atoi(fields[2].c_str());
      frame.function = fields[3];
      frame.source = fields[4];
      frame.entry = fields[0] == "E";
      threads.back().frames.push_back(std::move(frame));
    }
  }
  return threads;
}

std::vector<Frame> with_python(const std::vector<Frame>& native, const std::vector<Frame>& python) {
  const auto inner = std::find_if(native.begin(), native.end(), is_interpreter);
  const auto outer = std::find_if(native.rbegin(), native.rend(), is_interpreter).base();
  std::vector<Frame> result;
  std::copy_if(native.begin(), inner, std::back_inserter(result),
               [](const Frame& frame) { return !is_binding(frame); });
  if (inner == native.end() || python.empty()) {
    result.insert(result.end(), python.begin(), python.end());
    if (inner == native.end()) return result;
    Frame folded;
    folded.folded = static_cast<int>(outer - inner);
    result.push_back(std::move(folded));
  } else if (std::count_if(inner, outer, evaluates) ==
             std::count_if(python.begin(), python.end(), [](const Frame& frame) { return frame.entry; })) {
    // What stands between two of them has called back.
    auto next = python.begin();
    for (auto frame = inner; frame != outer; ++frame) {
      if (evaluates(*frame)) {
        do {
          result.push_back(*next);
        } while (!next++->entry);
      } else if (!is_interpreter(*frame) && !is_binding(*frame) && !is_start_up(*frame)) {
        result.push_back(*frame);
      }
    }
    result.insert(result.end(), next, python.end());
  } else {
    // A stack that is cut short, or an interpreter of another kind: which belong together is not known.
    result.insert(result.end(), python.begin(), python.end());
  }
  std::copy_if(outer, native.end(), std::back_inserter(result),
               [](const Frame& frame) { return !is_start_up(frame); });
  return result;
}

}  // namespace accel
