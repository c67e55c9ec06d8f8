// ACCEL_CHECK=sync: a collective is verified on all ranks before it runs on any.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "judge/verdict.h"

namespace accel {

/// Which communicator, as its members know it.
struct CheckedCommunicator {
  std::uint64_t key = 0;
  int size = 0;
};

/// Fails the call in the library's own way; returns what the call shall return. `text`: the whole report.
using Raise = std::function<int(const Verdict& verdict, const std::string& text)>;

/// Waits until all members have made call `sequence`; what `raise` returns if they do not agree, else 0.
/// Where the members are not all on this node it says so once and returns 0.
int verify_before(const CheckedCommunicator& communicator, std::uint64_t sequence, const Raise& raise);

}  // namespace accel
