// A native stack with an interpreter in it, and what the interpreter says.
#include <gtest/gtest.h>

#include "report/python_frames.h"

namespace accel {
namespace {

Frame native(const std::string& function, const std::string& module) {
  Frame frame;
  frame.function = function;
  frame.module = module;
  return frame;
}

TEST(Python, ReadsWhatTheInterpreterHasWritten) {
  const auto threads = parse_python(
      "T\t42\tMainThread\nF\ttrain.py\t7\tstep\tx "
      "=\ty\nF\ttrain.py\t9\t<module>\t\nT\t43\tloader\nnonsense\nF\tshort\n");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(threads[0].tid, 42);
  ASSERT_EQ(threads[0].frames.size(), 2u);
  EXPECT_EQ(threads[0].frames[0].function, "step");
  EXPECT_EQ(threads[0].frames[0].source, "x =\ty") << "a source line may hold tabs";
  EXPECT_EQ(threads[1].name, "loader");
  EXPECT_TRUE(threads[1].frames.empty());
}

TEST(Python, ItsFramesStandWhereTheInterpreterStood) {
  const std::vector<Frame> stack = {native("ncclAllReduce_helper", "/usr/lib/libtorch.so"),
                                    native("__pyx_pw_Allreduce", "/usr/lib/MPI.so"),
                                    native("ffi_call", "/usr/lib/libffi.so.8.1.4"),
                                    native("cfunction_call", "/usr/bin/python3.11"),
                                    native("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"),
                                    native("main", "/usr/bin/python3.11")};
  Frame python;
  python.function = "train_step";
  python.file = "train.py";
  const auto merged = with_python(stack, {python});
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].function, "ncclAllReduce_helper");
  EXPECT_EQ(merged[1].function, "train_step");
}

TEST(Python, WhatCallsBackStandsBetweenItsFrames) {
  const std::vector<Frame> stack = {native("_PyEval_EvalFrameDefault", "/usr/bin/python3.9"),
                                    native("_PyFunction_Vectorcall", "/usr/bin/python3.9"),
                                    native("integrate", "/opt/solver.cpython-39-x86_64-linux-gnu.so"),
                                    native("_PyEval_EvalFrameDefault", "/usr/bin/python3.9"),
                                    native("Py_BytesMain", "/usr/bin/python3.9"),
                                    native("__libc_start_main", "/usr/lib/libc.so.6")};
  const auto names = [](const std::vector<Frame>& frames) {
    std::vector<std::string> result;
    result.reserve(frames.size());
    for (const Frame& frame : frames) result.push_back(frame.function);
    return result;
  };
  Frame inner, outer;
  inner.function = "residual";
  outer.function = "<module>";
  inner.entry = outer.entry = true;
  Frame called = inner;
  called.entry = false;
  EXPECT_EQ(names(with_python(stack, {inner, outer})),
            (std::vector<std::string>{"residual", "integrate", "<module>"}));
  EXPECT_EQ(names(with_python(stack, {called, inner, outer})),
            (std::vector<std::string>{"residual", "residual", "integrate", "<module>"}));
  EXPECT_EQ(names(with_python(stack, {inner, inner, outer})),
            (std::vector<std::string>{"residual", "residual", "<module>"}))
      << "not guessed";
}

TEST(Python, WithoutItsFramesTheInterpreterIsOneLine) {
  const std::vector<Frame> stack = {native("ffi_call", "/usr/lib/libffi.so.8.1.4"),
                                    native("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0"),
                                    native("", "/usr/lib/libpython3.11.so.1.0"),
                                    native("main", "/opt/solver")};
  const auto folded = with_python(stack, {});
  ASSERT_EQ(folded.size(), 2u) << "what embeds the interpreter stays";
  EXPECT_EQ(traceback_lines({folded[0]}), "  [2 frames of the Python interpreter]\n");
  EXPECT_EQ(folded[1].function, "main");
}

}  // namespace
}  // namespace accel
