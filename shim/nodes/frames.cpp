#include "nodes/frames.h"

namespace accel {

std::string encoded(FrameKind kind, std::string_view body) {
  std::string result;
  put(result, static_cast<std::uint32_t>(1 + body.size()));
  put(result, kind);
  result += body;
  return result;
}

void FrameParser::add(std::string_view bytes) {
  if (broken_) return;
  bytes_.erase(0, taken_);
  taken_ = 0;
  bytes_ += bytes;
}

std::optional<WireFrame> FrameParser::next() {
  if (broken_) return std::nullopt;
  std::string_view left = std::string_view(bytes_).substr(taken_);
  std::uint32_t length = 0;
  if (!take_value(left, length)) return std::nullopt;
  if (length == 0 || length > longest_) {
    broken_ = true;
    bytes_.clear();
    return std::nullopt;
  }
  if (left.size() < length) return std::nullopt;
  WireFrame frame{static_cast<FrameKind>(left[0]), std::string(left.substr(1, length - 1))};
  taken_ += sizeof length + length;
  return frame;
}

}  // namespace accel
