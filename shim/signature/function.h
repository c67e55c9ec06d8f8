// The intercepted functions by number and by what they are; made from functions.def.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "signature/roles.h"

namespace accel {

/// Between whom data flows, and so whose counts must meet and who cannot return before whom.
enum class Flow : std::uint8_t {
  NoWait,    ///< returns without the others
  Everyone,  ///< each needs something of each
  FromRoot,  ///< the others need the root
  ToRoot,    ///< the root needs the others
  Prefix,    ///< each needs those of lower rank
  ToPeer,    ///< may wait for one receiver
  FromPeer,  ///< waits for one sender
};

enum class Function : std::uint16_t {
  None,
  Init,
  Finalize,
#define MPI_COLLECTIVE(name, ...) name,
#define MPI_UNNUMBERED(name, ...) name,
#include "signature/functions.def"
  Count_
};

/// What is known of a function without a call of it.
struct FunctionTraits {
  std::string_view name;
  Flow flow = Flow::NoWait;
  bool numbered = false;  ///< counts in the communicator's order of calls
  bool data = false;      ///< moves data: has counts and datatypes
  bool vector = false;    ///< has a count for each peer
  bool rooted = false;
  bool reduces = false;
  bool creates = false;  ///< makes a new communicator
};

namespace detail {
template <class... Roles>
constexpr FunctionTraits traits(std::string_view name, Flow flow, bool numbered) {
  using namespace role;
  return {name,
          flow,
          numbered,
          has<Count, Roles...> || has<SendCount, Roles...> || has<SendCounts, Roles...> ||
              has<RecvCounts, Roles...>,
          has<SendCounts, Roles...> || has<RecvCounts, Roles...>,
          has<Root, Roles...>,
          has<ReduceOp, Roles...>,
          has<NewComm, Roles...>};
}

constexpr auto make_function_table() {
  using namespace role;
  return std::array<FunctionTraits, static_cast<std::size_t>(Function::Count_)>{
      FunctionTraits{"(no call)"},
      FunctionTraits{"MPI_Init", Flow::Everyone},
      FunctionTraits{"MPI_Finalize", Flow::Everyone, true},
#define MPI_COLLECTIVE(name, flow, ...) traits<__VA_ARGS__>("MPI_" #name, Flow::flow, true),
#define MPI_UNNUMBERED(name, flow, ...) traits<__VA_ARGS__>("MPI_" #name, Flow::flow, false),
#include "signature/functions.def"
  };
}
inline constexpr auto kFunctions = make_function_table();
}  // namespace detail

/// Safe for any number, also one read from a damaged file: those are "(no call)".
constexpr const FunctionTraits& traits(Function function) {
  const auto index = static_cast<std::size_t>(function);
  return detail::kFunctions[index < detail::kFunctions.size() ? index : 0];
}

}  // namespace accel
