// Recognising a program by its command; see trainers.def.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "launcher/batch/carrier.h"
#include "launcher/batch/sizes.h"

namespace accel {

/// Where the numbers of a program stand, in words. Empty: there is none.
struct Knobs {
  std::string name;  ///< of the program, as the table calls it
  Rule rule = Rule::MicroAndAccumulation;
  std::string batch, accumulation, global, evaluation;
  std::string learning_rate, resume;
};

/// All names of the table.
std::vector<std::string> trainer_names();
/// By name, whatever the command is; nullopt: not in the table.
std::optional<Knobs> trainer_named(const std::string& name);
/// By the command.
std::optional<Knobs> recognise(const Command& command);
/// What may be the batch size of a program that is not in the table: carriers.
std::vector<std::string> guesses(const Command& command);

}  // namespace accel
