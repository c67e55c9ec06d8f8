// What the interpreter of a rank has said of its threads, and how it fits into a native stack.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "report/symbols.h"

namespace accel {

struct PythonThread {
  std::int32_t tid = 0;       ///< 0: not known; the main thread then, if it is the only one
  std::string name;           ///< "MainThread"
  std::vector<Frame> frames;  ///< innermost first
};

/// Lines as lifecycle/python.cpp writes them; what does not fit is left out.
std::vector<PythonThread> parse_python(const std::string& text);

/// The Python frames of a thread in place of the interpreter's own, which are folded to one where Python's
/// are not known. What native code inside and outside of them has called stays, and what stands between them
/// where that can be told.
std::vector<Frame> with_python(const std::vector<Frame>& native, const std::vector<Frame>& python);

}  // namespace accel
