// What accelrun says, in the user's language: English, or Chinese where ACCEL_LANG (else LC_ALL, LC_MESSAGES,
// LANG) begins with "zh".
#pragma once
#include <fmt/format.h>

#include <string>

namespace accel {

bool speaks_chinese();

/// Both texts with the same arguments, in the same order.
template <class... Arguments>
std::string words(const char* english, const char* chinese, const Arguments&... arguments) {
  return fmt::format(fmt::runtime(speaks_chinese() ? chinese : english), arguments...);
}

}  // namespace accel
