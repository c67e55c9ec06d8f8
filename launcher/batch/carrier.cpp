#include "launcher/batch/carrier.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "launcher/failure.h"

namespace accel {
namespace {

[[noreturn]] void fail(const std::string& line) { throw Failure(ACCEL_EXIT_USAGE, line); }

bool is_glob(const std::string& name) { return name.starts_with("*"); }

/// Whether a flag is what its carrier says, `*` standing for any beginning.
bool matches(const std::string& flag, const std::string& wanted) {
  return is_glob(wanted) ? flag.ends_with(wanted.substr(1)) : flag == wanted;
}

bool is_file_of(const std::string& word, FileFormat format) {
  switch (format) {
    case FileFormat::Yaml:
      return word.ends_with(".yaml") || word.ends_with(".yml");
    case FileFormat::Json:
      return word.ends_with(".json");
    case FileFormat::Toml:
      return word.ends_with(".toml");
  }
  return false;
}

}  // namespace

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

Carrier Carrier::parse(const std::string& text, const std::string& placeholder) {
  Carrier carrier;
  carrier.text_ = text;
  if (const auto number = whole_number(text)) {
    carrier.kind_ = Kind::Placeholder;
    carrier.name_ = placeholder;
    carrier.otherwise_ = number;
    return carrier;
  }
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  std::string rest = colon != std::string::npos ? text.substr(colon + 1) : "";
  if (const auto mark = rest.rfind('?'); mark != std::string::npos) {
    carrier.otherwise_ = whole_number(rest.substr(mark + 1));
    if (!carrier.otherwise_) fail(fmt::format("{}: what follows the ? is no whole number", text));
    rest.resize(mark);
  }
  carrier.name_ = rest;
  if (kind == "arg") {
    carrier.kind_ = Kind::Argument;
  } else if (kind == "env") {
    carrier.kind_ = Kind::Variable;
  } else if (kind == "pos") {
    carrier.kind_ = Kind::Position;
    const auto position = whole_number(rest);
    if (!position) fail(fmt::format("{}: expected the number of a word, such as pos:2", text));
    carrier.position_ = static_cast<long>(*position);
  } else if (kind == "yaml" || kind == "json" || kind == "toml") {
    carrier.kind_ = Kind::File;
    carrier.format_ = kind == "yaml"   ? FileFormat::Yaml
                      : kind == "json" ? FileFormat::Json
                                       : FileFormat::Toml;
    const auto hash = rest.rfind('#');
    if (hash == std::string::npos || hash == 0 || hash + 1 == rest.size())
      fail(fmt::format("{}: expected {}:FILE#dotted.key", text, kind));
    carrier.name_ = rest.substr(0, hash);
    carrier.key_ = rest.substr(hash + 1);
  } else {
    fail(
        fmt::format("{} is not where a number can be: expected arg:--flag, arg:key=, pos:N, env:NAME, "
                    "yaml:|json:|toml:FILE#key, or a number, which stands for {} in the command",
                    text, placeholder));
  }
  if (carrier.name_.empty()) fail(fmt::format("{}: a name is missing after the colon", text));
  return carrier;
}

std::vector<Carrier::Occurrence> Carrier::occurrences(const Command& command) const {
  std::vector<Occurrence> found;
  const bool with_equals = name_.ends_with("=");
  const std::string flag = with_equals ? name_.substr(0, name_.size() - 1) : name_;
  for (std::size_t i = 0; i < command.words.size(); ++i) {
    const std::string& word = command.words[i];
    const auto equals = word.find('=');
    if (equals != std::string::npos && matches(word.substr(0, equals), flag)) {
      found.push_back({i, word.substr(0, equals + 1), word.substr(equals + 1)});
    } else if (!with_equals && matches(word, flag) && i + 1 < command.words.size()) {
      found.push_back({i + 1, "", command.words[i + 1]});
      ++i;
    } else if (flag.size() == 2 && flag[0] == '-' && word.starts_with(flag) && word.size() > 2) {
      if (whole_number(word.substr(2))) found.push_back({i, flag, word.substr(2)});
    }
  }
  return found;
}

std::size_t Carrier::position(const Command& command) const {
  const long size = static_cast<long>(command.words.size());
  const long place = position_ < 0 ? size + position_ : position_;
  if (place < 1 || place >= size)
    fail(fmt::format("{}: the command has no such word; its words are numbered from 0 to {}", text_,
                     size - 1));
  return static_cast<std::size_t>(place);
}

std::string Carrier::file(const Command& command) const {
  if (name_ == "*") {
    for (const std::string& word : command.words) {
      if (is_file_of(word, format_)) return word;
    }
    fail(fmt::format("{}: no word of the command is such a file", text_));
  }
  if (!name_.starts_with("@")) return name_;
  Carrier flag;
  flag.name_ = name_.substr(1);
  const auto found = flag.occurrences(command);
  if (found.empty()) fail(fmt::format("{}: the command has no {}", text_, flag.name_));
  return found.back().number;
}

std::string Carrier::text_of_file(const Command& command, const std::string& path) const {
  if (const auto copy = command.copies.find(path); copy != command.copies.end()) return copy->second;
  std::ifstream stream(path);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf())) fail(fmt::format("{}: {} cannot be read", text_, path));
  return text.str();
}

std::optional<std::int64_t> Carrier::read(const Command& command) const {
  std::string number;
  switch (kind_) {
    case Kind::Placeholder:
      return otherwise_;
    case Kind::File: {
      const std::string path = file(command);
      const auto there = number_in(text_of_file(command, path), format_, key_, path);
      return there ? there : otherwise_;
    }
    case Kind::Variable: {
      const auto changed = command.environment.find(name_);
      const char* value = std::getenv(name_.c_str());
      if (changed != command.environment.end()) {
        number = changed->second;
      } else if (value != nullptr) {
        number = value;
      } else {
        return otherwise_;
      }
      break;
    }
    case Kind::Position:
      number = command.words[position(command)];
      break;
    case Kind::Argument: {
      const auto found = occurrences(command);
      if (found.empty()) return otherwise_;
      number = found.back().number;
      break;
    }
  }
  const auto value = whole_number(number);
  if (!value) fail(fmt::format("{} is {} in the command, but a whole number is needed", text_, number));
  return value;
}

void Carrier::write(Command& command, std::int64_t number) const {
  const std::string text = std::to_string(number);
  switch (kind_) {
    case Kind::Placeholder:
      for (std::string& word : command.words) {
        for (std::size_t at = 0; (at = word.find(name_, at)) != std::string::npos; at += text.size())
          word.replace(at, name_.size(), text);
      }
      return;
    case Kind::File: {
      const std::string path = file(command);
      const std::string before = text_of_file(command, path);
      if (!number_in(before, format_, key_, path))
        fail(fmt::format("{}: {} does not say it; write {} into it once, so that it can be changed", text_,
                         path, key_));
      command.copies[path] = with_number(before, format_, key_, number, path);
      return;
    }
    case Kind::Variable:
      command.environment[name_] = text;
      return;
    case Kind::Position:
      command.words[position(command)] = text;
      return;
    case Kind::Argument:
      break;
  }
  const auto found = occurrences(command);
  if (found.empty()) {
    if (is_glob(name_)) fail(fmt::format("{}: no word of the command is like that", text_));
    if (name_.ends_with("=")) {
      command.words.push_back(name_ + text);
    } else {
      command.words.push_back(name_);
      command.words.push_back(text);
    }
    return;
  }
  // What says the same says the same afterwards; what a later word overrides stays as it is.
  for (const Occurrence& one : found) {
    if (one.number == found.back().number) command.words[one.word] = one.before + text;
  }
}

}  // namespace accel
