// One number in a YAML, JSON or TOML file: where it stands in the text, so that a copy with another number
// differs from the original in nothing else. The libraries find the place; the text itself is spliced.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace accel {

enum class FileFormat { Yaml, Json, Toml };

/// The number at a dotted key ("training.batch_size", "data.0.batch"); nullopt: there is no such key. Throws
/// Failure 64: not such a file, or what stands there is no whole number.
std::optional<std::int64_t> number_in(const std::string& text, FileFormat format, const std::string& key,
                                      const std::string& file);

/// The text with another number there. The key exists. `file` is for error messages.
std::string with_number(const std::string& text, FileFormat format, const std::string& key,
                        std::int64_t number, const std::string& file);

}  // namespace accel
