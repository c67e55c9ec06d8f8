#include "launcher/batch/config_file.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <toml++/toml.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <string_view>
#include <vector>

#include "launcher/failure.h"

namespace accel {
namespace {

std::vector<std::string> parts_of(const std::string& key) {
  std::vector<std::string> parts{""};
  for (const char c : key) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Where the value of a key begins.
struct Place {
  std::size_t begin = 0;
  bool scalar = true;
};

std::optional<std::size_t> index_of(const std::string& part) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  return error == std::errc() && end == part.data() + part.size() ? std::optional(index) : std::nullopt;
}

/// JSON is YAML, as far as this goes.
std::optional<Place> find_yaml(const std::string& text, const std::string& key) {
  YAML::Node node = YAML::Load(text);
  for (const std::string& part : parts_of(key)) {
    const auto index = index_of(part);
    // Assignment to a node changes the tree: reset makes it another node.
    if (node.IsMap() && node[part]) {
      node.reset(node[part]);
    } else if (node.IsSequence() && index && *index < node.size()) {
      node.reset(node[*index]);
    } else {
      return std::nullopt;
    }
  }
  return Place{static_cast<std::size_t>(node.Mark().pos), node.IsScalar()};
}

std::size_t offset_of(const std::string& text, toml::source_position position) {
  std::size_t at = 0;
  for (toml::source_index line = 1; line < position.line; ++line) at = text.find('\n', at) + 1;
  return at + position.column - 1;
}

std::optional<Place> find_toml(const std::string& text, const std::string& key) {
  const toml::table table = toml::parse(text);
  const toml::node* node = &table;
  for (const std::string& part : parts_of(key)) {
    const auto index = index_of(part);
    const toml::node* next = nullptr;
    if (const toml::table* inner = node->as_table()) next = inner->get(part);
    if (const toml::array* list = node->as_array(); list != nullptr && index) next = list->get(*index);
    if (next == nullptr) return std::nullopt;
    node = next;
  }
  return Place{offset_of(text, node->source().begin), node->is_value()};
}

struct Number {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int64_t value = 0;
};

[[noreturn]] void no_number(const std::string& file, const std::string& key, std::string_view what) {
  throw Failure(ACCEL_EXIT_USAGE, fmt::format("{}: {} is {}, but a whole number is needed", file, key, what));
}

std::optional<Number> find_number(const std::string& text, FileFormat format, const std::string& key,
                                  const std::string& file) {
  std::optional<Place> place;
  try {
    place = format == FileFormat::Toml ? find_toml(text, key) : find_yaml(text, key);
  } catch (const std::exception& error) {
    const char* name = format == FileFormat::Toml ? "TOML" : format == FileFormat::Json ? "JSON" : "YAML";
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} is not {}: {}", file, name, error.what()));
  }
  if (!place) return std::nullopt;
  if (!place->scalar || place->begin >= text.size()) no_number(file, key, "no single value");
  Number number;
  number.begin = place->begin;
  if (text[number.begin] == '"' || text[number.begin] == '\'') ++number.begin;
  number.end = text.find_first_of(" \t\r\n,]}#\"'", number.begin);
  if (number.end == std::string::npos) number.end = text.size();
  const char* const begin = text.data() + number.begin;
  const char* const end = text.data() + number.end;
  const auto [stop, error] = std::from_chars(begin, end, number.value);
  if (error != std::errc() || stop != end)
    no_number(file, key, std::string_view(begin, number.end - number.begin));
  return number;
}

}  // namespace

std::optional<std::int64_t> number_in(const std::string& text, FileFormat format, const std::string& key,
                                      const std::string& file) {
  const auto number = find_number(text, format, key, file);
  return number ? std::optional(number->value) : std::nullopt;
}

std::string with_number(const std::string& text, FileFormat format, const std::string& key,
                        std::int64_t number, const std::string& file) {
  const auto there = find_number(text, format, key, file);
  if (!there) throw Failure(ACCEL_EXIT_USAGE, fmt::format("{} has no {}", file, key));
  std::string changed = text.substr(0, there->begin) + std::to_string(number) + text.substr(there->end);
  if (number_in(changed, format, key, file) != number)
    throw Failure(ACCEL_EXIT_INTERNAL, fmt::format("{}: {} cannot be changed in place", file, key));
  return changed;
}

}  // namespace accel
