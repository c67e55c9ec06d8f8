// Stacks of many ranks as one prefix tree, as LLNL's STAT merges them. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace accel {

struct RankStack {
  int rank = 0;
  std::vector<std::string> frames;  ///< outermost first
};

/// The tree as text: a line a branch, the frames that only one branch has in a row behind it, with the ranks
/// in it in front. Where branches part the one with the fewest ranks stands first: the odd one out is what
/// one looks for. Never more than `most_lines` lines (at least 3): what is folded is counted. 10,000 stacks
/// of 30 frames take well below a second.
std::string stack_tree(const std::vector<RankStack>& stacks, std::size_t most_lines = 58);

}  // namespace accel
