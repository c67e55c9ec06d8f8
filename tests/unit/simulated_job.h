// A job without processes: ranks that "call" collectives, and the evidence an observer would have of them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "judge/judge.h"
#include "record/evidence.h"
#include "signature/agreement.h"

namespace accel::testing {

inline constexpr std::int64_t kSecond = 1'000'000'000;

/// What a rank gives to a call.
struct Arguments {
  Function function = Function::Barrier;
  std::int64_t count = 0;
  BasicType type = BasicType::None;
  ReduceOpId op = 0;
  std::int32_t root = 0;
  VectorEvidence vectors;
};

/// Number of the predefined datatype with that one basic type.
inline DatatypeId id_of(BasicType type) {
  for (std::size_t i = 1; i < std::size(kDatatypes); ++i) {
    if (kDatatypes[i].signature == TypeSignature::of(type)) return static_cast<DatatypeId>(i);
  }
  return 0;
}

class SimulatedRank : public History {
 public:
  std::optional<CallRecord> call(std::uint16_t communicator, std::uint64_t sequence) const override {
    const auto found = calls.find({communicator, sequence});
    return found != calls.end() ? std::optional(found->second) : std::nullopt;
  }
  std::optional<CallRecord> pair_call(Function function, std::uint16_t communicator, std::int32_t peer,
                                      std::uint64_t number) const override {
    for (const CallRecord& one : on_streams) {
      if (one.function == function && one.communicator == communicator && one.root == peer &&
          one.sequence == number)
        return one;
    }
    return std::nullopt;
  }
  std::vector<CallRecord> recent_on_streams(std::size_t) const override { return on_streams; }
  std::int64_t started_ns(const CallRecord& record) const override {
    return static_cast<std::int64_t>(record.started);
  }
  std::optional<VectorEvidence> vectors(const CallRecord& record) const override {
    const auto found = blocks.find({record.communicator, record.sequence});
    return found != blocks.end() ? std::optional(found->second) : std::nullopt;
  }
  DatatypeEvidence datatype(DatatypeId id) const override {
    if (const NcclDatatype* nccl = nccl_datatype(id))
      return {TypeSignature::of(nccl->type), std::string(name_of(nccl->type)), true};
    if (id == 0 || id >= std::size(kDatatypes)) return {};
    return {kDatatypes[id].signature, std::string(name_of(kDatatypes[id].signature.only)), true};
  }
  SiteEvidence site(const CallRecord&) const override { return {}; }

  std::map<std::pair<std::uint16_t, std::uint64_t>, CallRecord> calls;
  std::vector<CallRecord> on_streams;  ///< in order
  std::map<std::pair<std::uint16_t, std::uint64_t>, VectorEvidence> blocks;
};

/// Slot 0 of every rank is the world; further communicators get the next slot on their members.
class SimulatedJob {
 public:
  explicit SimulatedJob(int size) {
    evidence.now_ns = 100 * kSecond;
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(rank);
      ProcessEvidence process;
      process.pid = 1000 + rank;
      process.world_key = 7;
      process.world_rank = rank;
      process.world_size = size;
      process.phase = Phase::Running;
      process.no_other_thread = true;
      ranks.push_back(std::make_shared<SimulatedRank>());
      process.history = ranks.back();
      evidence.processes.push_back(process);
    }
    add_communicator(all, 7);
  }

  /// The slot that all members use for it.
  std::uint16_t add_communicator(const std::vector<int>& members, std::uint64_t key) {
    const std::uint16_t slot = next_slot_++;
    for (std::size_t i = 0; i < members.size(); ++i) {
      CommunicatorEvidence communicator;
      communicator.slot = slot;
      communicator.record.key = key;
      communicator.record.chain = key;
      communicator.record.rank = static_cast<std::int32_t>(i);
      communicator.record.size = static_cast<std::int32_t>(members.size());
      process(members[i]).communicators.push_back(communicator);
    }
    return slot;
  }

  ProcessEvidence& process(int rank) { return evidence.processes[static_cast<std::size_t>(rank)]; }

  CommunicatorRecord& communicator(int rank, std::uint16_t slot) {
    for (CommunicatorEvidence& one : process(rank).communicators) {
      if (one.slot == slot) return one.record;
    }
    throw std::logic_error("not a member");
  }

  /// An NCCL communicator of all ranks.
  std::uint16_t add_nccl(std::uint64_t key) {
    std::vector<int> all;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) all.push_back(static_cast<int>(rank));
    const std::uint16_t slot = add_communicator(all, key);
    for (const int rank : all) communicator(rank, slot).flags = kCommunicatorOnStream;
    return slot;
  }
  /// The rank has enqueued the call on that stream, in a launch of its own unless `with_previous`.
  void enqueue(int rank, std::uint16_t slot, const Arguments& arguments, std::uint16_t stream = 0,
               bool with_previous = false) {
    auto& streams = process(rank).streams;
    while (streams.size() <= stream) streams.emplace_back();
    if (!with_previous) ++streams[stream].record.launched;
    const auto launch = static_cast<std::uint16_t>(streams[stream].record.launched);
    if (traits(arguments.function).numbered) {
      make(rank, slot, arguments, false);
    } else {
      make_pair(rank, slot, arguments);
    }
    SimulatedRank& history = *ranks[static_cast<std::size_t>(rank)];
    history.on_streams.back().tag = stream;
    history.on_streams.back().launch = launch;
    if (traits(arguments.function).numbered)
      history.calls[{slot, communicator(rank, slot).sequence}] = history.on_streams.back();
  }
  /// The GPU is known not to have completed more than `completed` launches, for `seconds`.
  void stand_still(int rank, std::uint16_t stream, std::uint64_t completed, int seconds) {
    StreamEvidence& one = process(rank).streams[stream];
    one.record.tracked = 1;
    one.record.completed = completed;
    one.since_ns = evidence.now_ns - seconds * kSecond;
  }

  /// The rank has made the call and returned from it.
  void call(int rank, std::uint16_t slot, const Arguments& arguments) { make(rank, slot, arguments, false); }
  /// The rank has made the call and is inside.
  void enter(int rank, std::uint16_t slot, const Arguments& arguments) { make(rank, slot, arguments, true); }

  std::vector<Verdict> judge(const JudgePolicy& policy = {}) const { return accel::judge(evidence, policy); }

  Evidence evidence;
  std::vector<std::shared_ptr<SimulatedRank>> ranks;

 private:
  void make(int rank, std::uint16_t slot, const Arguments& arguments, bool inside) {
    CommunicatorRecord& state = communicator(rank, slot);
    Agreement agreement{agreed_start(arguments.function,
                                     traits(arguments.function).rooted ? arguments.root : 0, arguments.op),
                        0};
    if (traits(arguments.function).vector) {
      const VectorEvidence& v = arguments.vectors;
      agreement =
          agree_vectors(agreement.agreed, state.rank, state.size, v.sends.empty() ? nullptr : v.sends.data(),
                        v.expects.empty() ? nullptr : v.expects.data(), v.same_everywhere);
    } else if (traits(arguments.function).data) {
      agreement.agreed =
          mix(agreement.agreed, block_hash(TypeSignature::of(arguments.type), arguments.count));
    }
    state.sequence += 1;
    state.chain = mix(state.chain, agreement.agreed);
    state.balance += agreement.balance;
    CallRecord record{};
    record.stamp = 2;
    record.communicator = slot;
    record.function = arguments.function;
    record.sequence = state.sequence;
    record.chain = state.chain;
    record.balance = state.balance;
    record.started = ++clock_;
    record.count = arguments.count;
    record.root = arguments.root;
    record.returned = inside ? 0 : 1;
    record.datatype = id_of(arguments.type);
    record.op = arguments.op;
    SimulatedRank& history = *ranks[static_cast<std::size_t>(rank)];
    history.calls[{slot, state.sequence}] = record;
    if (traits(arguments.function).on_stream) history.on_streams.push_back(record);
    if (traits(arguments.function).vector) history.blocks[{slot, state.sequence}] = arguments.vectors;
    if (inside)
      process(rank).blocked.push_back({static_cast<std::uint32_t>(1000 + rank), record, evidence.now_ns});
  }

  void make_pair(int rank, std::uint16_t slot, const Arguments& arguments) {
    const CommunicatorRecord& state = communicator(rank, slot);
    const std::uint32_t direction = arguments.function == Function::NcclRecv ? 1 : 0;
    PairRecord* pair = nullptr;
    for (PairRecord& one : process(rank).pairs) {
      if (one.communicator == state.key && one.peer == arguments.root && one.direction == direction)
        pair = &one;
    }
    if (pair == nullptr) {
      process(rank).pairs.push_back({state.key, arguments.root, direction, 0, {state.key}});
      pair = &process(rank).pairs.back();
    }
    const std::uint64_t chain =
        mix(pair->chains[pair->count % 8], static_cast<std::uint64_t>(arguments.count));
    ++pair->count;
    pair->chains[pair->count % 8] = chain;
    CallRecord record{};
    record.stamp = 2;
    record.communicator = slot;
    record.function = arguments.function;
    record.sequence = pair->count;
    record.chain = chain;
    record.started = ++clock_;
    record.count = arguments.count;
    record.root = arguments.root;
    record.returned = 1;
    record.datatype = kNcclDatatype + 7;
    ranks[static_cast<std::size_t>(rank)]->on_streams.push_back(record);
  }

  std::uint16_t next_slot_ = 0;
  std::uint64_t clock_ = 0;
};

using Ranks = std::vector<int>;

/// World ranks of the parties that are.
inline Ranks blamed(const Verdict& verdict) {
  std::vector<int> ranks;
  for (const Party& party : verdict.parties) {
    if (party.blamed) ranks.push_back(party.world_rank);
  }
  return ranks;
}

inline Arguments barrier() { return {}; }
inline Arguments allreduce(std::int64_t count, BasicType type = BasicType::Float64, ReduceOpId op = 3) {
  return {Function::Allreduce, count, type, op, 0, {}};
}
inline Arguments bcast(std::int64_t count, std::int32_t root) {
  return {Function::Bcast, count, BasicType::Int32, 0, root, {}};
}
inline Arguments nccl_allreduce(std::int64_t count) {
  return {Function::NcclAllReduce, count, BasicType::Float32, kNcclOp, 0, {}};
}
inline Arguments nccl_send(std::int64_t count, std::int32_t to) {
  return {Function::NcclSend, count, BasicType::Float32, 0, to, {}};
}
inline Arguments nccl_recv(std::int64_t count, std::int32_t from) {
  return {Function::NcclRecv, count, BasicType::Float32, 0, from, {}};
}
inline Arguments finalize() { return {Function::Finalize, 0, BasicType::None, 0, 0, {}}; }

}  // namespace accel::testing
