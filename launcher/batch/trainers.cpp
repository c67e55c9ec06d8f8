#include "launcher/batch/trainers.h"

#include <algorithm>
#include <sstream>

#include "launcher/failure.h"

namespace accel {
namespace {

struct Row {
  Knobs knobs;
  std::string where;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
#define TRAINER(name, rule, where, batch, accumulation, global, evaluation, rate, resume) \
  {{name, Rule::rule, batch, accumulation, global, evaluation, rate, resume}, where},
#include "launcher/batch/trainers.def"
  };
  return all;
}

constexpr const char* kGuesses[] = {
#define GUESS(carrier) carrier,
#include "launcher/batch/trainers.def"
};

bool is_true(const std::string& condition, const Command& command) {
  const auto colon = condition.find(':');
  const std::string kind = condition.substr(0, colon);
  const std::string name = condition.substr(colon + 1);
  return std::any_of(command.words.begin(), command.words.end(), [&](const std::string& word) {
    if (kind == "word") return word == name || word.ends_with("/" + name);
    if (kind == "flag") return word == name || word.starts_with(name + "=");
    if (kind == "file") return word.ends_with("." + name) || (name == "yaml" && word.ends_with(".yml"));
    // key
    return name.starts_with("*") ? word.find(name.substr(1)) != std::string::npos : word.starts_with(name);
  });
}

}  // namespace

std::vector<std::string> trainer_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.push_back(row.knobs.name);
  return names;
}

std::optional<Knobs> trainer_named(const std::string& name) {
  const auto row =
      std::find_if(rows().begin(), rows().end(), [&](const Row& one) { return one.knobs.name == name; });
  return row != rows().end() ? std::optional(row->knobs) : std::nullopt;
}

std::optional<Knobs> recognise(const Command& command) {
  for (const Row& row : rows()) {
    std::istringstream conditions(row.where);
    bool fits = true;
    for (std::string condition; conditions >> condition;) fits = fits && is_true(condition, command);
    if (fits) return row.knobs;
  }
  return std::nullopt;
}

std::vector<std::string> guesses(const Command& command) {
  std::vector<std::string> found;
  for (const char* carrier : kGuesses) {
    try {
      if (Carrier::parse(carrier, "{batch}").read(command)) found.emplace_back(carrier);
    } catch (const Failure&) {
      // Something else than a number stands there: it is no batch size.
    }
  }
  return found;
}

}  // namespace accel
