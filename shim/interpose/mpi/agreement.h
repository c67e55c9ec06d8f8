// From a call's arguments to what must agree: looks up its types and picks, by the function's flow and roles,
// the sides that are significant on this rank. All decisions but those on rank and MPI_IN_PLACE fall at
// compile time.
#pragma once
#include "interpose/mpi/abi.h"
#include "interpose/mpi/communicators.h"
#include "interpose/mpi/datatypes.h"
#include "record/recorder.h"
#include "signature/agreement.h"
#include "signature/function.h"

namespace accel {

struct Comparison {
  Agreement agreement;
  std::int64_t count = 0;  ///< for the record
  DatatypeId datatype = 0;
  ReduceOpId op = 0;
  bool comparable = true;
};

namespace detail {

inline ResolvedSide resolve(const Side& side, Comparison& comparison) {
  if (side.buffer == abi().in_place) return {{}, 0, true};
  const DatatypeInfo& type = datatype(side.type);
  if (!type.comparable && side.count != 0) comparison.comparable = false;
  return {type.signature, side.count, false};
}

/// One side of a vector collective as blocks.
inline void fill(PeerBlock* blocks, int size, const Side& side, Comparison& comparison) {
  const DatatypeInfo* one = side.types == nullptr ? &datatype(side.type) : nullptr;
  for (int peer = 0; peer < size; ++peer) {
    const int count = side.counts[peer];
    if (count == 0) continue;
    const DatatypeInfo& type = one != nullptr ? *one : datatype(abi().element(side.types, peer));
    if (!type.comparable) comparison.comparable = false;
    blocks[peer] = {block_hash(type.signature, count), count};
  }
}

inline PeerBlock block(const ResolvedSide& side) { return {side.hash(), side.count}; }

template <Flow flow, class... Roles>
void compare_vectors(const Call& call, const CommunicatorInfo& communicator, Recorder& recorder,
                     std::uint64_t start, Comparison& comparison) {
  using namespace role;
  constexpr bool kSendVector = has<SendCounts, Roles...>;
  constexpr bool kRecvVector = has<RecvCounts, Roles...>;
  constexpr bool kReduceScatter = has<ReduceOp, Roles...>;
  constexpr bool kSameEverywhere = kRecvVector && !kSendVector && flow == Flow::Everyone;
  const int rank = communicator.rank;
  const bool is_root = rank == call.root;
  const Recorder::Vectors vectors = recorder.reserve_vectors(communicator.size);
  if (vectors.head == nullptr) {
    comparison.comparable = false;
    return;
  }
  std::uint32_t flags = kSameEverywhere ? kVectorSame : 0;
  const bool shows_send =
      kReduceScatter || (flow == Flow::ToRoot && !is_root) || (flow == Flow::FromRoot && is_root);
  const Side& shown = shows_send ? call.send : call.recv;
  comparison.datatype = shown.types == nullptr ? datatype(shown.type).id : DatatypeId{0};

  if constexpr (flow == Flow::ToRoot) {
    const ResolvedSide own = resolve(call.send, comparison);
    flags |= kVectorSends | (is_root ? kVectorExpects : 0);
    if (!own.in_place) vectors.sends[call.root] = block(own);
    if (is_root) {
      fill(vectors.expects, communicator.size, call.recv, comparison);
      if (own.in_place) vectors.expects[rank] = {};
    }
  } else if constexpr (flow == Flow::FromRoot) {
    const ResolvedSide own = resolve(call.recv, comparison);
    flags |= kVectorExpects | (is_root ? kVectorSends : 0);
    if (!own.in_place) vectors.expects[call.root] = block(own);
    if (is_root) {
      fill(vectors.sends, communicator.size, call.send, comparison);
      if (own.in_place) vectors.sends[rank] = {};
    }
  } else if constexpr (kReduceScatter) {
    flags |= kVectorExpects;
    Side side = call.recv;
    side.type = call.send.type;
    fill(vectors.expects, communicator.size, side, comparison);
  } else if constexpr (kSameEverywhere) {
    flags |= kVectorExpects;
    fill(vectors.expects, communicator.size, call.recv, comparison);
    const ResolvedSide own = resolve(call.send, comparison);
    if (!own.in_place) {
      flags |= kVectorSends;
      vectors.sends[rank] = block(own);
    }
  } else {
    flags |= kVectorSends | kVectorExpects;
    fill(vectors.expects, communicator.size, call.recv, comparison);
    const bool in_place = call.send.buffer == abi().in_place;
    fill(vectors.sends, communicator.size, in_place ? call.recv : call.send, comparison);
  }
  vectors.head->flags = flags;
  comparison.count = static_cast<std::int64_t>(vectors.head->position);
  comparison.agreement =
      agree_vectors(start, rank, communicator.size, (flags & kVectorSends) != 0 ? vectors.sends : nullptr,
                    (flags & kVectorExpects) != 0 ? vectors.expects : nullptr, kSameEverywhere);
}

}  // namespace detail

template <Function function, Flow flow, class... Roles>
[[gnu::always_inline]] inline Comparison compare(const Call& call, const CommunicatorInfo& communicator,
                                                 Recorder& recorder) {
  using namespace role;
  constexpr bool kVector = has<SendCounts, Roles...> || has<RecvCounts, Roles...>;
  constexpr bool kTwoSides = has<SendCount, Roles...> && has<RecvCount, Roles...>;
  Comparison comparison;
  if (communicator.inter) {
    // Roots and counts differ between the two groups by right.
    comparison.agreement.agreed = agreed_start(function, 0, 0);
    return comparison;
  }
  if constexpr (has<ReduceOp, Roles...>) comparison.op = reduce_op(call.op);
  const std::uint64_t start = agreed_start(function, has<Root, Roles...> ? call.root : 0, comparison.op);
  comparison.agreement.agreed = start;
  if constexpr (kVector) {
    const bool root_valid = !has<Root, Roles...> || (call.root >= 0 && call.root < communicator.size);
    if (root_valid) detail::compare_vectors<flow, Roles...>(call, communicator, recorder, start, comparison);
  } else if constexpr (kTwoSides) {
    const bool is_root = communicator.rank == call.root;
    // Of the two sides only the significant one may be looked at: the other's arguments can be anything.
    const Side& side = flow == Flow::FromRoot               ? (is_root ? call.send : call.recv)
                       : flow == Flow::ToRoot               ? (is_root ? call.recv : call.send)
                       : call.send.buffer == abi().in_place ? call.recv
                                                            : call.send;
    const ResolvedSide common = detail::resolve(side, comparison);
    comparison.agreement.agreed = mix(start, common.hash());
    comparison.count = side.count;
    comparison.datatype = datatype(side.type).id;
  } else if constexpr (has<Count, Roles...>) {
    const DatatypeInfo& type = datatype(call.send.type);
    if (!type.comparable && call.send.count != 0) comparison.comparable = false;
    comparison.agreement.agreed = mix(start, block_hash(type.signature, call.send.count));
    comparison.count = call.send.count;
    comparison.datatype = type.id;
  }
  return comparison;
}

}  // namespace accel
