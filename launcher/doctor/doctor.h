// accelrun doctor: what is wrong with the machine, and what to do about it.
#pragma once
#include <string>
#include <vector>

#include "launcher/doctor/finding.h"

namespace accel::doctor {

struct Request {
  std::string hostfile;              ///< empty: this machine only
  std::vector<std::string> command;  ///< empty: none
  bool json = false;
};

Findings examine(const Request& request);
/// Lines for people, or one JSON object.
std::string text_of(const Findings& findings, bool json);
/// `accelrun doctor ...`: exit status 0, or 69 where something is an error.
int main(int argc, char** argv);

}  // namespace accel::doctor
