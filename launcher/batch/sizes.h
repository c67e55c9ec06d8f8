// From the sizes that ran out of memory to those to try next. Pure: no command, no processes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel {

/// How a program's numbers hang together, which decides what keeps the mathematics the same.
enum class Rule {
  MicroAndAccumulation,  ///< batch × accumulation × ranks examples a step: batch down, accumulation up
  MicroAndGlobal,        ///< batch × what the program works out itself = global: batch down
  Divided,               ///< the program divides its batch by the accumulation: accumulation up
  GlobalOnly,   ///< batch examples a step and no accumulation: batch down, and the step is another one
  Tokens,       ///< as MicroAndAccumulation, counted in tokens
  SelfKeeping,  ///< the program keeps its nominal batch by accumulating on its own: batch down
  BuiltIn,      ///< what is built is of that size: batch down, and it is another thing
};
const char* name_of(Rule rule);

struct Sizes {
  std::int64_t batch = 0;         ///< as the program takes it
  std::int64_t accumulation = 1;  ///< 1 where there is none
  std::int64_t global = 0;        ///< 0: there is none
  std::int64_t evaluation = 0;    ///< 0: there is none

  bool operator==(const Sizes&) const = default;
};

/// Examples (or tokens) that are on the GPU at once.
std::int64_t micro_batch(Rule rule, const Sizes& sizes);
/// Examples a step and rank; nullopt where the program's own arithmetic decides.
std::optional<std::int64_t> examples_a_step(Rule rule, const Sizes& sizes);

/// How far to go down at once.
struct Reduction {
  enum class Kind { Factor, Steps, Bisect, Fit } kind = Kind::Factor;
  double factor = 0.5;
  int steps = 2;  ///< Steps: sizes between two powers of two: 64, 48, 32, 24, ...

  /// "half", "0.9", "pow2:2", "bisect", "fit"; nullopt: none of them.
  static std::optional<Reduction> parse(const std::string& text);
};

enum class Keep { Require, Prefer, Off };

/// An attempt that is over.
struct Attempt {
  Sizes sizes;
  std::int64_t needed = 0;  ///< bytes that the failed request would have brought the process to; 0: unknown
  std::int64_t total = 0;   ///< bytes of the GPU
  bool ran = false;         ///< known from an earlier run
};

struct SizePolicy {
  Rule rule = Rule::MicroAndAccumulation;
  Reduction reduction;
  Keep keep = Keep::Prefer;
  std::int64_t min_batch = 1;  ///< of the micro batch
};

/// What to try after the attempts so far, of which the last ran out of memory; nullopt: nothing is left.
std::optional<Sizes> next_sizes(const SizePolicy& policy, const std::vector<Attempt>& attempts);

/// "batch 256 × accumulation 1 = 256 a rank"; with `ranks` > 0 also what that makes for all of them.
std::string equation(Rule rule, const Sizes& sizes, int ranks);

}  // namespace accel
