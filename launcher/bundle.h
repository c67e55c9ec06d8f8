// accelrun report: all that somebody else needs to understand a run, in one archive, without names and
// secrets.
#pragma once
#include <string>
#include <vector>

namespace accel {

/// Takes user names, host names and the values of what looks like a secret out of a text. Names are replaced
/// by as many letters, so that it works for records, too.
class Scrubber {
 public:
  Scrubber();
  void add_name(const std::string& name);
  std::string operator()(std::string text) const;

 private:
  std::vector<std::string> names_;
};

/// `accelrun report ...`
int report_main(int argc, char** argv);

}  // namespace accel
