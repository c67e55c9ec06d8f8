// Who has waited how long so far, from arrivals as they come. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "timing/arrivals.h"

namespace accel {

class WaitTally {
 public:
  /// In any order of ranks; each rank's in the order of its calls. `size`: ranks of the communicator.
  void add(std::uint64_t communicator, std::int32_t size, const Arrival& arrival);

  /// That the process has waited in collectives to which all of their ranks have come.
  std::int64_t waited_ns(std::uint32_t process) const {
    return process < waited_.size() ? waited_[process] : 0;
  }

 private:
  struct Open {
    Meeting meeting;
    std::vector<Arrival> arrivals;
  };
  /// Collectives that wait for their other ranks: those of a communicator whose ranks never all come (on
  /// other nodes, or overwritten) must not pile up.
  static constexpr std::size_t kMostOpen = 4096;
  std::map<std::uint64_t, std::map<std::uint64_t, Open>> open_;  ///< by communicator and number
  std::vector<std::int64_t> waited_;
};

}  // namespace accel
