// "0, 2-127": ranks as people write them.
#pragma once
#include <string>
#include <vector>

namespace accel {

/// `ranks` ascending.
std::string rank_set(const std::vector<int>& ranks);

}  // namespace accel
