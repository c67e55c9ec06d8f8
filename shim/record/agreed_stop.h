// How processes that never wait for each other agree on one of many numbered points: as soon as anybody asks
// for it, all of them stop at the same number, the first that none of them has passed.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace accel {

/// Lies in shared memory; zero-filled is its valid initial state. Lock-free, any thread, signal-safe.
class AgreedStop {
 public:
  /// A process comes to its point `number` (from 1, each once): whether it is one at which all stop.
  bool check(std::uint32_t number) {
    std::uint64_t seen = word_.load();
    while (frontier(seen) < number && !word_.compare_exchange_weak(seen, pack(number, stop(seen)))) {}
    return stop(seen) == number || (number < stop(seen) && is_past(number));
  }

  /// All are to stop at the first number above `at_least` that nobody has come to; nothing if they already
  /// are to stop at one that nobody has come to.
  void ask(std::uint32_t at_least = 0) {
    std::uint64_t seen = word_.load();
    do {
      if (stop(seen) > frontier(seen)) return;
      // Who is far behind is still to stop there.
      if (stop(seen) != 0 && !is_past(stop(seen))) past_[count_.fetch_add(1) % kPast].store(stop(seen));
    } while (!word_.compare_exchange_weak(
        seen, pack(std::max(frontier(seen), at_least), std::max(frontier(seen), at_least) + 1)));
  }

  /// Begins anew. Nobody may be in check() or ask().
  void clear() {
    word_.store(0);
    count_.store(0);
    for (auto& one : past_) one.store(0);
  }

  /// The latest one; 0: none.
  std::uint32_t latest() const { return stop(word_.load()); }

 private:
  static std::uint64_t pack(std::uint32_t frontier, std::uint32_t stop) {
    return std::uint64_t{frontier} << 32 | stop;
  }
  static std::uint32_t frontier(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
  static std::uint32_t stop(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  bool is_past(std::uint32_t number) const {
    return std::any_of(std::begin(past_), std::end(past_),
                       [number](const auto& one) { return one.load() == number; });
  }

  /// Stops that somebody may not have come to yet, while others have passed them: further ones are forgotten.
  static constexpr std::uint32_t kPast = 16;

  std::atomic<std::uint64_t> word_;  ///< the furthest that anybody has come to, and the latest stop
  std::atomic<std::uint32_t> count_;
  std::atomic<std::uint32_t> past_[kPast];
};

}  // namespace accel
