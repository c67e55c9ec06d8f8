// Circles among calls that wait on streams.
#pragma once
#include <map>
#include <optional>

#include "judge/judge.h"
#include "judge/members.h"

namespace accel {

/// Calls on one stream run one after another, and an NCCL call needs its counterparts to run on the other
/// ranks. Plays through what can come to an end in any case; what is left although every rank has enqueued it
/// waits in a circle, for ever. A send may end without its receive, if it is small:
/// it counts as waiting once it is seen to stand still.
std::optional<Verdict> find_stream_circle(const Evidence& evidence,
                                          const std::map<std::uint64_t, Members>& communicators);

}  // namespace accel
