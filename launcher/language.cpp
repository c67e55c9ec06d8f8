#include "launcher/language.h"

#include <cstdlib>
#include <string_view>

namespace accel {

bool speaks_chinese() {
  for (const char* name : {"ACCEL_LANG", "LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return std::string_view(value).starts_with("zh");
  }
  return false;
}

}  // namespace accel
