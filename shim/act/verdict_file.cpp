#include "act/verdict_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace accel {

std::optional<nlohmann::json> read_verdict(const RunDirectory& run) {
  const FileDescriptor file(openat(run.fd(), "verdict.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text;
  char chunk[4096];
  for (ssize_t got; (got = read(file.get(), chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<std::size_t>(got));
  auto verdict = nlohmann::json::parse(text, nullptr, false);
  if (!verdict.is_object() || !verdict.contains("error")) return std::nullopt;
  return verdict;
}

std::string sentence_of(const nlohmann::json& verdict) {
  return fmt::format("[accel] {} ({}; the whole report has been printed)", verdict.value("error", ""),
                     verdict.value("operation", ""));
}

void leave_elastic_error(const nlohmann::json& verdict) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr || *path == '\0') return;
  const FileDescriptor file(open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return;
  const auto parties = verdict.value("processes", nlohmann::json::array());
  const bool blamed = std::any_of(parties.begin(), parties.end(), [](const nlohmann::json& party) {
    return party.is_object() && party.value("pid", 0) == getpid() && party.value("blamed", false);
  });
  // Source of the format: torch.distributed.elastic's error handler; it prints what it calls the callstack.
  // Whoever is to blame comes first.
  const nlohmann::json error = {{"message",
                                 {{"message", sentence_of(verdict)},
                                  {"extraInfo",
                                   {{"py_callstack", sentence_of(verdict)},
                                    {"timestamp", std::to_string(std::time(nullptr) - (blamed ? 1 : 0))}}}}}};
  const std::string text = error.dump();
  [[maybe_unused]] const ssize_t written = write(file.get(), text.data(), text.size());
}

}  // namespace accel
