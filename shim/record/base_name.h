// A path's last part.
#pragma once
#include <string_view>

namespace accel {

/// Valid as long as `path`.
inline std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace accel
