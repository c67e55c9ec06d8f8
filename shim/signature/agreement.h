// What must agree: from a call with its types looked up to the two words that ranks compare.
//
// `agreed` must be the same on every rank of the communicator. `balance` is for what may legally differ from
// rank to rank (vector collectives): each rank adds a word for every block it sends and subtracts one for
// every block it expects; over all ranks of the communicator the sum is zero exactly if every sender and
// receiver mean the same. So n ranks are compared by one word each.
#pragma once
#include <cstdint>

#include "signature/call.h"
#include "signature/function.h"
#include "signature/hash.h"
#include "signature/type_signature.h"

namespace accel {

struct Agreement {
  std::uint64_t agreed = 0;
  std::uint64_t balance =
      0;  ///< NCCL, which has no vector collectives: hash of the configuration, which should be the same
  std::uint64_t datatype = 0;  ///< NCCL: where only bytes must agree, what they were called; need not
};

/// What a vector collective exchanges with one peer.
struct PeerBlock {
  std::uint64_t hash = 0;  ///< block_hash; 0: nothing
  std::int64_t count = 0;  ///< elements, for the report
};

/// One side of a call with its type resolved.
struct ResolvedSide {
  TypeSignature type;
  std::int64_t count = 0;
  bool in_place = false;

  std::uint64_t hash() const { return block_hash(type, count); }
};

/// The word for one block on its way from rank `from` to rank `to`; 0 for an empty block.
constexpr std::uint64_t pair_word(int from, int to, std::uint64_t block) {
  if (block == 0) return 0;
  return mix(block, static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 |
                        static_cast<std::uint32_t>(to));
}

/// The part of `agreed` that every collective has; not mixed yet.
constexpr std::uint64_t agreed_start(Function function, std::int32_t root, std::uint16_t op) {
  return static_cast<std::uint64_t>(function) << 48 | static_cast<std::uint64_t>(op) << 32 |
         static_cast<std::uint32_t>(root);
}

/// For vector collectives. `sends[j]` goes to rank j, `expects[i]` comes from rank i; either may be null.
/// `same_everywhere`: the expected vector must be one and the same on all ranks (Allgatherv, Reduce_scatter).
inline Agreement agree_vectors(std::uint64_t start, int rank, int size, const PeerBlock* sends,
                               const PeerBlock* expects, bool same_everywhere) {
  Agreement result{start, 0};
  for (int peer = 0; peer < size; ++peer) {
    if (sends != nullptr) result.balance += pair_word(rank, peer, sends[peer].hash);
    if (expects != nullptr) {
      if (same_everywhere) {
        result.agreed = mix(result.agreed, expects[peer].hash);
        if (sends != nullptr && peer == rank) result.balance -= pair_word(rank, rank, expects[rank].hash);
      } else {
        result.balance -= pair_word(peer, rank, expects[peer].hash);
      }
    }
  }
  return result;
}

}  // namespace accel
