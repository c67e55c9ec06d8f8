// What becomes of streams: whether a capture is on, and when one goes away.
#pragma once
#include <cstdint>

namespace accel::cuda {

/// Whether what is enqueued on the stream now goes into a graph instead of running. Asks the driver only
/// while a capture is on somewhere in the process.
bool is_capturing(std::uintptr_t stream);
/// Whether a capture is on somewhere in the process.
bool somebody_captures();

/// Called with each stream that is about to be destroyed. One listener.
void on_stream_end(void (*listener)(std::uintptr_t stream));

}  // namespace accel::cuda
