// Asks all processes of a run for their stacks.
#pragma once
#include <functional>

#include "collect/observer.h"

namespace accel {

/// How long ranks may take to answer with their stacks: a rank that is stopped never does.
inline constexpr std::int64_t kStackPatience = 60'000'000;
/// How long an interpreter may take to let us in, where the verdict is certain; and where those who wait have
/// waited for long already.
inline constexpr std::int64_t kPythonPatience = 180'000'000;
inline constexpr std::int64_t kLatePatience = 2'000'000'000;

/// Asks and waits until all of `evidence` that live have answered: at most kStackPatience, and `for_python`
/// for interpreters. `answer`: called after the asking with its number, when this process is one of those
/// asked. `number`: what somebody else calls the request; 0: the next one. The request's number, for
/// RecordReader::stacks and python.
using AnswerStacks = std::function<void(std::uint32_t number)>;
std::uint32_t request_stacks(Board& board, const Observer& observer, const Evidence& evidence,
                             std::int64_t for_python, const AnswerStacks& answer = nullptr,
                             std::uint32_t number = 0);

}  // namespace accel
