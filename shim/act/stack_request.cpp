#include "act/stack_request.h"

#include <unistd.h>

#include <algorithm>

#include "record/futex.h"

namespace accel {

std::uint32_t request_stacks(Board& board, const Observer& observer, const Evidence& evidence,
                             std::int64_t for_python, const AnswerStacks& answer, std::uint32_t number) {
  if (number != 0) board.stack_request.store(number);
  const std::uint32_t request = number != 0 ? number : board.stack_request.fetch_add(1) + 1;
  board.command.fetch_add(1);
  futex_wake_all(board.command);
  if (answer) answer(request);
  const auto answered = [&] {
    for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
      const ProcessEvidence& process = evidence.processes[i];
      if (!process.alive || process.world_rank < 0) continue;
      const RecordReader& reader = observer.reader(i);
      const bool python = process.python && !process.has_left();
      if (reader.stacks(request).empty() || (python && !reader.python(request))) return false;
    }
    return true;
  };
  const bool python = std::any_of(evidence.processes.begin(), evidence.processes.end(),
                                  [](const ProcessEvidence& process) { return process.python; });
  const std::int64_t deadline = monotonic_ns() + (python ? for_python : kStackPatience);
  while (!answered() && monotonic_ns() < deadline) usleep(1000);
  return request;
}

}  // namespace accel
