// Python values as pickle's protocol 2 has them.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace accel {

/// Appends one value after another; containers are opened and closed around theirs. Source: the opcodes'
/// descriptions in CPython's pickletools.
class Pickle {
 public:
  void none() { bytes_ += 'N'; }
  void boolean(bool value) { bytes_ += value ? "\x88" : "\x89"; }
  void integer(std::int64_t value) {
    bytes_ += "\x8a\x08";  // LONG1, eight bytes
    append(static_cast<std::uint64_t>(value), 8);
  }
  void real(double value) {
    bytes_ += 'G';
    const auto bits = __builtin_bswap64(std::bit_cast<std::uint64_t>(value));  // the big end first
    append(bits, 8);
  }
  /// ASCII; other bytes become question marks.
  void text(std::string_view value) {
    bytes_ += 'X';
    append(value.size(), 4);
    for (const char c : value) bytes_ += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  }
  void begin_list() { bytes_ += "]("; }
  void end_list() { bytes_ += 'e'; }
  /// Keys and values by turns.
  void begin_dict() { bytes_ += "}("; }
  void end_dict() { bytes_ += 'u'; }
  void begin_tuple() { bytes_ += '('; }
  void end_tuple() { bytes_ += 't'; }

  void entry(std::string_view key, std::string_view value) {
    text(key);
    text(value);
  }
  void entry(std::string_view key, std::int64_t value) {
    text(key);
    integer(value);
  }

  /// The values of another one, as if they had been appended here.
  void add(const Pickle& values) { bytes_ += values.bytes_; }
  /// The file, of one outermost value.
  std::string file() const { return "\x80\x02" + bytes_ + "."; }

 private:
  void append(std::uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }
  std::string bytes_;
};

}  // namespace accel
