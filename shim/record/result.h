// A value, or a sentence that says what failed. Errors inside the shim are values, handled once at the door.
#pragma once
#include <optional>
#include <string>
#include <utility>

namespace accel {

template <class T>
struct Result {
  std::optional<T> value;
  std::string error;

  Result(T good) : value(std::move(good)) {}
  static Result failure(const std::string& why) {
    Result result;
    result.error = why;
    return result;
  }
  explicit operator bool() const { return value.has_value(); }
  T& operator*() { return *value; }
  T* operator->() { return &*value; }

 private:
  Result() = default;
};

}  // namespace accel
