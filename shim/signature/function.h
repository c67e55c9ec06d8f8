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
#define NCCL_COLLECTIVE(name, ...) Nccl##name,
#define NCCL_PAIR(name, ...) Nccl##name,
#define NCCL_BY_HAND(name, ...) Nccl##name,
#include "signature/functions.def"
  Count_
};

/// Whose function it is.
enum class Library : std::uint8_t { None, Mpi, Nccl, Cuda };

/// What is known of a function without a call of it.
struct FunctionTraits {
  std::string_view name;
  Flow flow = Flow::NoWait;
  bool numbered = false;  ///< counts in the communicator's order of calls
  bool data = false;      ///< moves data: has counts and datatypes
  bool vector = false;    ///< has a count for each peer
  bool rooted = false;
  bool reduces = false;
  bool creates = false;            ///< makes a new communicator
  Function kind = Function::None;  ///< what it counts as: ncclBcast is an ncclBroadcast
  Library library = Library::None;
  bool on_stream = false;   ///< returns at once; the work is done when its turn on the stream comes
  bool bytes_only = false;  ///< ranks must agree on the number of bytes, not on the datatype
};

namespace detail {
template <class... Roles>
constexpr FunctionTraits traits(std::string_view name, Function kind, Flow flow, bool numbered,
                                Library library) {
  using namespace role;
  return {name,
          flow,
          numbered,
          has<Count, Roles...> || has<SendCount, Roles...> || has<SendCounts, Roles...> ||
              has<RecvCounts, Roles...> || has<Elements, Roles...>,
          has<SendCounts, Roles...> || has<RecvCounts, Roles...>,
          has<Root, Roles...>,
          has<ReduceOp, Roles...> || has<NcclOp, Roles...>,
          has<NewComm, Roles...>,
          kind,
          library,
          has<Stream, Roles...>,
          has<Elements, Roles...> && !has<NcclOp, Roles...>};
}

constexpr auto make_function_table() {
  using namespace role;
  return std::array<FunctionTraits, static_cast<std::size_t>(Function::Count_)>{
      FunctionTraits{"(no call)"},
      traits<>("MPI_Init", Function::Init, Flow::Everyone, false, Library::Mpi),
      traits<>("MPI_Finalize", Function::Finalize, Flow::Everyone, true, Library::Mpi),
#define MPI_COLLECTIVE(name, flow, ...) \
  traits<__VA_ARGS__>("MPI_" #name, Function::name, Flow::flow, true, Library::Mpi),
#define MPI_UNNUMBERED(name, flow, ...) \
  traits<__VA_ARGS__>("MPI_" #name, Function::name, Flow::flow, false, Library::Mpi),
#define NCCL_COLLECTIVE(name, counted, flow, ...) \
  traits<__VA_ARGS__>("nccl" #name, Function::Nccl##counted, Flow::flow, true, Library::Nccl),
#define NCCL_PAIR(name, counted, flow, ...) \
  traits<__VA_ARGS__>("nccl" #name, Function::Nccl##counted, Flow::flow, false, Library::Nccl),
#define NCCL_BY_HAND(name, flow, numbered) \
  traits<>("nccl" #name, Function::Nccl##name, Flow::flow, numbered, Library::Nccl),
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
