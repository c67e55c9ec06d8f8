#include "launcher/recorded_run.h"

#include <accel/accel.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "launcher/failure.h"

namespace accel {

nlohmann::json read_json(const std::string& path) {
  std::ifstream stream(path);
  auto json = nlohmann::json::parse(stream, nullptr, false);
  return json.is_object() ? json : nlohmann::json::object();
}

RecordedRun open_run(const std::string& path) {
  RecordedRun run;
  run.path = path;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    run.manifest = read_json(path);
    if (!run.manifest.contains("command"))
      throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} is no manifest of a run", path));
    return run;
  }
  const FileDescriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory)
    throw Failure(
        ACCEL_EXIT_USAGE,
        fmt::format("{} is neither the directory of a run (accelrun --keep says where it is) nor a manifest",
                    path));
  run.manifest = read_json(path + "/manifest.json");
  run.verdict = read_json(path + "/verdict.json");
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!is_record(name)) continue;
    auto reader = RecordReader::open(directory.get(), name);
    RecordedRun::Process process;
    process.file = name;
    if (!reader || !(*reader)->read(process.evidence)) {
      run.unreadable.push_back(fmt::format("{}: {}", name, reader ? "cannot be read" : reader.error));
      continue;
    }
    process.reader = *reader;
    run.processes.push_back(std::move(process));
  }
  std::sort(run.processes.begin(), run.processes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.evidence.world_rank, a.evidence.pid) <
           std::pair(b.evidence.world_rank, b.evidence.pid);
  });
  if (run.processes.empty() && run.manifest.empty())
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} holds neither records nor a manifest", path));
  return run;
}

}  // namespace accel
