#include "report/shape.h"

#include <fmt/format.h>

namespace accel {
namespace {

/// "2, 2, 3": at most eight of them.
std::string counts_text(const std::vector<std::int64_t>& counts) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < counts.size() && i < kMost; ++i) words.push_back(std::to_string(counts[i]));
  if (counts.empty() || counts.size() > kMost) words.emplace_back("...");
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

std::string shape(const CallRecord& call, const DatatypeEvidence& datatype,
                  const std::vector<std::int64_t>& counts) {
  const FunctionTraits& what = traits(call.function);
  std::vector<std::string> words;
  if (what.data) {
    words.push_back(datatype.name + "[" + (what.vector ? counts_text(counts) : std::to_string(call.count)) +
                    "]");
  }
  if (call.function == Function::NcclCommInitRank) words.push_back(fmt::format("{} ranks", call.count));
  if (what.reduces && call.op != 0) words.emplace_back(name_of_op(call.op));
  if (what.rooted) words.push_back(fmt::format("root {}", call.root));
  if (what.on_stream && call.tag == kCapturedStream) words.emplace_back("captured into a graph");
  if ((what.flow == Flow::ToPeer || what.flow == Flow::FromPeer) && call.root != -1) {
    words.push_back(fmt::format("{} {}", what.flow == Flow::FromPeer ? "from" : "to", call.root));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string communicator_name(std::uint64_t key) {
  return fmt::format("{:08x}", static_cast<std::uint32_t>(key >> 32));
}

}  // namespace accel
