#include "report/stack_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "report/rank_set.h"

namespace accel {
namespace {

struct Node {
  std::string frame;
  std::vector<int> ranks;
  std::size_t ending = 0;  ///< ranks whose innermost frame this is
  std::map<std::string, std::unique_ptr<Node>> children;
  std::vector<const Node*> order;  ///< of the children: fewest ranks first
};

void add(Node& root, const RankStack& stack) {
  Node* node = &root;
  node->ranks.push_back(stack.rank);
  for (const std::string& frame : stack.frames) {
    std::unique_ptr<Node>& child = node->children[frame];
    if (!child) {
      child = std::make_unique<Node>();
      child->frame = frame;
    }
    node = child.get();
    // A rank may have several threads.
    if (node->ranks.empty() || node->ranks.back() != stack.rank) node->ranks.push_back(stack.rank);
  }
  ++node->ending;
}

void put_in_order(Node& node) {
  for (const auto& [frame, child] : node.children) {
    put_in_order(*child);
    node.order.push_back(child.get());
  }
  std::stable_sort(node.order.begin(), node.order.end(), [](const Node* a, const Node* b) {
    return std::pair(a->ranks.size(), a->ranks.front()) < std::pair(b->ranks.size(), b->ranks.front());
  });
}

class Text {
 public:
  explicit Text(std::size_t branches) : branches_(branches) {}

  /// `lead`: in front of the node's own line; `follow`: in front of the lines below it.
  void write(const Node& node, const std::string& lead, const std::string& follow) {
    std::string line = fmt::format("{}[{}]", lead, rank_set(node.ranks));
    const Node* last = &node;
    const char* separator = " ";
    for (;;) {
      if (!last->frame.empty()) {
        line += separator + last->frame;
        separator = " → ";
      }
      if (last->order.size() != 1 || last->ending > 0) break;
      last = last->order.front();
    }
    result_ += line + "\n";
    ++lines_;
    write_children(*last, follow);
  }

  std::size_t lines() const { return lines_; }
  std::string take() { return std::move(result_); }

 private:
  void write_children(const Node& node, const std::string& follow) {
    const std::size_t all = node.order.size();
    // The fewest first, and the crowd last: between them is what is left out.
    const std::size_t shown = all > branches_ ? branches_ - 1 : all;
    for (std::size_t i = 0; i < shown; ++i) {
      const bool last = i + 1 == all;
      write(*node.order[i], follow + (last ? "└─" : "├─"), follow + (last ? "  " : "│ "));
    }
    if (shown == all) return;
    if (all > shown + 1) {
      std::vector<int> ranks;
      for (std::size_t i = shown; i + 1 < all; ++i)
        ranks.insert(ranks.end(), node.order[i]->ranks.begin(), node.order[i]->ranks.end());
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      constexpr std::size_t kWidth = 60;
      std::string set = rank_set(ranks);
      if (set.size() > kWidth)
        set = fmt::format("{},... {} ranks", set.substr(0, set.rfind(',', kWidth)), ranks.size());
      result_ += fmt::format("{}├─[{}] in {} more branches\n", follow, set, all - shown - 1);
      ++lines_;
    }
    write(*node.order.back(), follow + "└─", follow + "  ");
  }

  std::size_t branches_;
  std::size_t lines_ = 0;
  std::string result_;
};

}  // namespace

std::string stack_tree(const std::vector<RankStack>& stacks, std::size_t most_lines) {
  if (stacks.empty()) return {};
  std::vector<std::size_t> by_rank(stacks.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [&](std::size_t a, std::size_t b) { return stacks[a].rank < stacks[b].rank; });
  Node root;
  for (const std::size_t index : by_rank) add(root, stacks[index]);
  root.ranks.erase(std::unique(root.ranks.begin(), root.ranks.end()), root.ranks.end());
  put_in_order(root);
  // As many branches at each fork as leave room for all.
  for (std::size_t branches = 16;; branches = branches > 2 ? branches - 1 : 1) {
    Text text(branches);
    text.write(root, "", "");
    if (text.lines() <= most_lines) return text.take();
    if (branches == 1) {
      // One long chain of forks: what stands outermost says most.
      std::string all = text.take();
      std::size_t end = 0;
      for (std::size_t line = 0; line + 1 < most_lines; ++line) end = all.find('\n', end) + 1;
      return all.substr(0, end) + "...\n";
    }
  }
}

}  // namespace accel
