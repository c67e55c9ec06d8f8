// A command whose sizes are known and can be changed.
#pragma once
#include <optional>
#include <string>

#include "launcher/batch/trainers.h"

namespace accel {

class Adjustable {
 public:
  /// Reads the sizes. Throws Failure 64 where the command does not say what the knobs promise.
  Adjustable(Command command, const Knobs& knobs);

  const Sizes& sizes() const { return sizes_; }
  const Knobs& knobs() const { return knobs_; }
  /// The command with these sizes. What is the same as in the original stays untouched.
  Command with(const Sizes& sizes) const;

 private:
  Command original_;
  Knobs knobs_;
  std::optional<Carrier> batch_, accumulation_, global_, evaluation_;
  Sizes sizes_;
};

/// The rewritten copies of a command's files, for as long as this lives; and the command that names them
/// instead. They lie in a directory of their own, or beside the original where that may name others relative
/// to its place.
class Copies {
 public:
  /// Throws Failure 70 where there is no room for them.
  explicit Copies(Command& command);
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

 private:
  std::string directory_;
  std::vector<std::string> beside_;
};

/// As a shell would take it.
std::string quoted(const std::vector<std::string>& words);

}  // namespace accel
