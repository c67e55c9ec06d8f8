// A run that is over, as it was kept: its records, what accelrun noted of it, its verdict.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/reader.h"

namespace accel {

struct RecordedRun {
  std::string path;
  nlohmann::json manifest;  ///< an empty object where there is none
  nlohmann::json verdict;
  /// By world rank.
  struct Process {
    std::string file;
    std::shared_ptr<RecordReader> reader;
    ProcessEvidence evidence;
  };
  std::vector<Process> processes;
  std::vector<std::string> unreadable;  ///< files, each with the reason
};

/// The object in a file; an empty one where there is none.
nlohmann::json read_json(const std::string& path);

/// `path`: the directory of a run (accelrun --keep), or a manifest alone. Throws Failure 64 where it is
/// neither.
RecordedRun open_run(const std::string& path);

}  // namespace accel
