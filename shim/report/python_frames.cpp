#include "report/python_frames.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

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

bool is_interpreter(const Frame& frame) {
  const std::string_view module(frame.module);
  const std::string_view name = module.substr(module.rfind('/') + 1);
  return name.starts_with("python") || name.starts_with("libpython") ||
         frame.function.find("_PyEval_EvalFrame") != std::string::npos;
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
    } else if (fields[0] == "F" && fields.size() == 5 && !threads.empty()) {
      Frame frame;
      frame.file = fields[1];
      frame.line = std::atoi(fields[2].c_str());
      frame.function = fields[3];
      frame.source = fields[4];
      threads.back().frames.push_back(std::move(frame));
    }
  }
  return threads;
}

std::vector<Frame> with_python(const std::vector<Frame>& native, const std::vector<Frame>& python) {
  std::vector<Frame> result;
  const auto inner = std::find_if(native.begin(), native.end(), is_interpreter);
  std::copy_if(native.begin(), inner, std::back_inserter(result),
               [](const Frame& frame) { return !is_binding(frame); });
  result.insert(result.end(), python.begin(), python.end());
  if (python.empty() && inner != native.end()) {
    // From where the interpreter begins outwards: a program that embeds it has frames of its own there.
    const auto outer = std::find_if(native.rbegin(), native.rend(), is_interpreter).base();
    Frame folded;
    folded.folded = static_cast<int>(outer - inner);
    result.push_back(std::move(folded));
    std::copy_if(outer, native.end(), std::back_inserter(result), [](const Frame& frame) {
      return !frame.function.starts_with("_start") && !frame.function.starts_with("__libc_start");
    });
  }
  return result;
}

}  // namespace accel
