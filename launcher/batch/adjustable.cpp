#include "launcher/batch/adjustable.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/failure.h"

namespace accel {
namespace {

std::optional<Carrier> carrier(const std::string& text, const char* placeholder) {
  return text.empty() ? std::nullopt : std::optional(Carrier::parse(text, placeholder));
}

std::int64_t value_of(const std::optional<Carrier>& carrier, const Command& command, std::int64_t otherwise,
                      const char* what) {
  if (!carrier) return otherwise;
  const auto value = carrier->read(command);
  if (!value) {
    throw Failure(
        ACCEL_EXIT_USAGE,
        fmt::format("{} ({}) is not in the command; write it there, or say what it is by default: {}?N", what,
                    carrier->text(), carrier->text()));
  }
  if (*value < 1)
    throw Failure(ACCEL_EXIT_USAGE,
                  fmt::format("{} ({}) is {}; it must be at least 1", what, carrier->text(), *value));
  return *value;
}

}  // namespace

Adjustable::Adjustable(Command command, const Knobs& knobs)
    : original_(std::move(command)),
      knobs_(knobs),
      batch_(carrier(knobs.batch, "{batch}")),
      accumulation_(carrier(knobs.accumulation, "{accum}")),
      global_(carrier(knobs.global, "{global}")),
      evaluation_(carrier(knobs.evaluation, "{eval}")) {
  sizes_.batch = value_of(batch_, original_, 0, "the batch size");
  sizes_.accumulation = value_of(accumulation_, original_, 1, "the accumulation");
  sizes_.global = value_of(global_, original_, 0, "the global batch size");
  // A trainer of the table may do without it.
  if (evaluation_ && knobs.name.empty()) {
    sizes_.evaluation = value_of(evaluation_, original_, 0, "the evaluation batch size");
  } else if (evaluation_) {
    sizes_.evaluation = evaluation_->read(original_).value_or(0);
  }
}

Command Adjustable::with(const Sizes& sizes) const {
  Command command = original_;
  const auto put = [&](const std::optional<Carrier>& carrier, std::int64_t before, std::int64_t now) {
    const bool placeholder = carrier && whole_number(carrier->text());
    if (carrier && (placeholder || before != now)) carrier->write(command, now);
  };
  put(batch_, sizes_.batch, sizes.batch);
  put(accumulation_, sizes_.accumulation, sizes.accumulation);
  put(global_, sizes_.global, sizes.global);
  put(evaluation_, sizes_.evaluation, sizes.evaluation);
  return command;
}

namespace {

/// Whether a configuration may name other files relative to its own place.
bool has_relatives(const std::string& text) {
  for (const char* word : {"include", "defaults:", "_base_", "extends", "./", "../"}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

void put_instead(std::vector<std::string>& words, const std::string& file, const std::string& copy) {
  for (std::string& word : words) {
    if (word == file) word = copy;
    if (word.ends_with("=" + file)) word.replace(word.size() - file.size(), file.size(), copy);
  }
}

}  // namespace

Copies::Copies(Command& command) {
  for (auto one = command.copies.begin(); one != command.copies.end();) {
    const auto& [file, text] = *one;
    const std::filesystem::path original(file);
    const std::filesystem::path copy =
        original.parent_path() / fmt::format(".accelrun-{}-{}", getpid(), original.filename().string());
    std::ofstream stream;
    if (has_relatives(text)) stream.open(copy);
    if (!stream.is_open() || !(stream << text).flush()) {
      ++one;
      continue;
    }
    beside_.push_back(copy.string());
    put_instead(command.words, file, copy.string());
    one = command.copies.erase(one);
  }
  if (command.copies.empty()) return;
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/accelrun-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    throw Failure(ACCEL_EXIT_INTERNAL,
                  fmt::format("no directory can be made for rewritten files as {}; TMPDIR names "
                              "another place",
                              path));
  directory_ = path;
  int number = 0;
  for (const auto& [file, text] : command.copies) {
    const std::string place = fmt::format("{}/{}", directory_, ++number);
    std::filesystem::create_directory(place);
    const std::string copy = place + "/" + std::filesystem::path(file).filename().string();
    std::ofstream stream(copy);
    stream << text;
    if (!stream.flush())
      throw Failure(ACCEL_EXIT_INTERNAL, fmt::format("{} cannot be written: is the disk full?", copy));
    put_instead(command.words, file, copy);
  }
}

Copies::~Copies() {
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  for (const std::string& copy : beside_) std::filesystem::remove(copy, ignored);
}

std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-+=./:,@%{}") == std::string::npos;
    std::string escaped;
    for (const char c : word) escaped += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + escaped + "'");
  }
  return text;
}

}  // namespace accel
