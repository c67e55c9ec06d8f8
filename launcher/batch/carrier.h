// Where a number of the user's command stands, and how to put another one there.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/batch/config_file.h"

namespace accel {

/// The user's command, as it may be changed from attempt to attempt. Files are not changed: a copy is passed.
struct Command {
  std::vector<std::string> words;
  std::map<std::string, std::string> environment;  ///< to set for the ranks
  std::map<std::string, std::string> copies;       ///< text of a rewritten file by the original's path

  bool operator==(const Command&) const = default;
};

/// arg:--flag  arg:key=  arg:-b   `--flag N`, `--flag=N`, `-bN`, `key=N`; of several the last counts; a
/// leading `*`
///                                stands for anything: arg:*batch_size=
/// pos:K                          the K-th word of the command, which itself is word 0; from the end if
/// negative env:NAME                       an environment variable yaml:FILE#key json: toml:      a number in
/// a file; FILE may be `@--flag`: the file that the flag names, or `*`: the
///                                command's first word that ends like such a file
/// N                              the number itself, and {batch} or {accum} in the command
///
/// `?N` behind it: what it is where the command does not say (a program's default).
class Carrier {
 public:
  /// `placeholder`: what stands for it in the command, "{batch}". Throws Failure 64.
  static Carrier parse(const std::string& text, const std::string& placeholder);

  /// The number in the command; nullopt: it isn't there and has no default. Throws Failure 64 if it is no
  /// number.
  std::optional<std::int64_t> read(const Command& command) const;
  void write(Command& command, std::int64_t number) const;

  /// "arg:--batch-size"
  const std::string& text() const { return text_; }

 private:
  enum class Kind { Argument, Position, Variable, File, Placeholder };
  struct Occurrence {
    std::size_t word = 0;
    std::string before;  ///< of the word, before the number
    std::string number;
  };
  std::vector<Occurrence> occurrences(const Command& command) const;
  std::size_t position(const Command& command) const;
  std::string file(const Command& command) const;
  std::string text_of_file(const Command& command, const std::string& path) const;

  Kind kind_ = Kind::Argument;
  std::string text_;
  std::string name_;  ///< flag, variable, file or placeholder
  std::string key_;   ///< in the file
  FileFormat format_ = FileFormat::Yaml;
  long position_ = 0;
  std::optional<std::int64_t> otherwise_;
};

/// A whole number and nothing else.
std::optional<std::int64_t> whole_number(const std::string& text);

}  // namespace accel
