// What a check of the machine has found.
#pragma once
#include <string>
#include <vector>

namespace accel::doctor {

enum class Level { Ok, Warning, Error };

struct Finding {
  Level level = Level::Ok;
  std::string subject;  ///< "kernel", "ssh node-b"
  std::string text;     ///< what is so
  std::string remedy;   ///< what to do; empty where all is well
};

using Findings = std::vector<Finding>;

}  // namespace accel::doctor
