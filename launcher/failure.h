// What accelrun cannot do: one line for the user and the exit status that goes with it.
#pragma once
#include <stdexcept>
#include <string>

namespace accel {

class Failure : public std::runtime_error {
 public:
  Failure(int status, const std::string& line) : std::runtime_error(line), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

}  // namespace accel
