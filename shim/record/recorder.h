// The writer: one per process, its file mapped once, no locks and no system calls on the way of a call.
//
// All functions are safe from any number of threads at once and none of them fails: what does not fit is not
// recorded. begin() and end() are the hot path (measured in tests/bench).
#pragma once
#include <cstring>

#include "record/layout.h"
#include "record/result.h"
#include "record/run_directory.h"

namespace accel {

class Recorder {
 public:
  /// Creates PID.record in the run directory, with all its memory reserved (a full /dev/shm is an error here,
  /// not a SIGBUS later), and fills in who we are.
  /// `collectives`: how many are remembered, rounded up to a power of two.
  static Result<Recorder*> create(const RunDirectory& run, std::size_t collectives = kCollectives);

  RecorderFile& file() { return *file_; }
  RecorderHeader& header() { return file_->header; }
  const RecorderHeader& header() const { return file_->header; }

  /// Everything of a call that is known before it runs.
  struct Draft {
    Function function = Function::None;
    std::uint16_t communicator = 0;
    std::uint16_t site = 0;
    DatatypeId datatype = 0;
    ReduceOpId op = 0;
    std::int32_t root = -1;
    std::int32_t tag = 0;
    std::uint16_t launch = 0;
    std::int64_t count = 0;
  };
  struct Ticket {
    CallRecord* record = nullptr;
    ThreadRecord* thread = nullptr;
    bool timed = false;
    std::uint64_t position = 0;
    std::uint64_t chain_before = 0, balance_before = 0, position_before = 0,
                  types_before = 0;  ///< for take_back
  };

  /// Records that a numbered call (a collective) starts and gives it its number on the communicator.
  [[gnu::always_inline]] Ticket begin_numbered(const Draft& draft, const Agreement& agreement,
                                               ThreadRecord* thread) {
    CommunicatorRecord& communicator = file_->communicators[draft.communicator % kMaxCommunicators];
    const std::uint64_t sequence = load(communicator.sequence) + 1;
    const std::uint64_t chain = mix(load(communicator.chain), agreement.agreed);
    const std::uint64_t balance = load(communicator.balance) + agreement.balance;
    Ticket ticket = write(draft, Ring::Collectives, sequence, chain, balance, thread);
    ticket.chain_before = load(communicator.chain);
    ticket.balance_before = load(communicator.balance);
    ticket.position_before = load(communicator.position);
    ticket.types_before = load(communicator.types);

    const std::uint32_t stamp = load(communicator.stamp);
    store(communicator.stamp, stamp | 1);
    std::atomic_thread_fence(std::memory_order_release);
    store(communicator.sequence, sequence);
    store(communicator.chain, chain);
    store(communicator.balance, balance);
    store(communicator.position, ticket.position);
    if (agreement.datatype != 0) store(communicator.types, mix(load(communicator.types), agreement.datatype));
    __atomic_store_n(&communicator.stamp, (stamp | 1) + 1, __ATOMIC_RELEASE);
    if (thread != nullptr) enter(*thread, Ring::Collectives, ticket.position);
    return ticket;
  }

  /// Takes back the latest numbered call on its communicator: the library has refused it.
  void take_back(const Ticket& ticket);

  /// Records that a call on a pair of ranks starts and gives it its number there.
  Ticket begin_pair(const Draft& draft, PairRecord& pair, std::uint64_t agreed, ThreadRecord* thread) {
    const std::uint64_t count = load(pair.count) + 1;
    const std::uint64_t chain = mix(load(pair.chains[(count - 1) % 8]), agreed);
    const Ticket ticket = write(draft, Ring::Unnumbered, count, chain, 0, thread);
    store(pair.chains[count % 8], chain);
    __atomic_store_n(&pair.count, count, __ATOMIC_RELEASE);
    if (thread != nullptr) enter(*thread, Ring::Unnumbered, ticket.position);
    return ticket;
  }
  /// nullptr where there are too many.
  PairRecord* add_pair(std::uint64_t communicator, std::int32_t peer, std::uint32_t direction);

  /// Records that a call without a number starts (point-to-point).
  [[gnu::always_inline]] Ticket begin_unnumbered(const Draft& draft, ThreadRecord* thread) {
    const Ticket ticket = write(draft, Ring::Unnumbered, 0, 0, 0, thread);
    if (thread != nullptr) enter(*thread, Ring::Unnumbered, ticket.position);
    return ticket;
  }

  /// Records that the call has returned. How long it took only where that is asked for: a second time stamp
  /// is a third of a call's cost, and how long a rank waited follows from when the last of them came.
  static void end(const Ticket& ticket) {
    std::uint16_t returned = 1;
    if (ticket.timed) [[unlikely]]
      returned = Duration::encode(ticks_now() - ticket.record->started);
    store(ticket.record->returned, returned);
    if (ticket.thread != nullptr) __atomic_store_n(&ticket.thread->current, 0, __ATOMIC_RELEASE);
  }

  /// The latest numbered call on a communicator has returned before it was done. The value names it below.
  std::uint64_t keep_open(int slot) {
    const std::uint64_t position = load(file_->communicators[slot].position);
    store(collective(position).returned, std::uint16_t{0});
    return 2 * (position + 1) + static_cast<std::uint64_t>(Ring::Collectives);
  }
  /// The thread waits for it, or has learnt that it is done.
  void wait_for(ThreadRecord& thread, std::uint64_t call, bool done) {
    if (done) store(collective(call / 2 - 1).returned, std::uint16_t{1});
    __atomic_store_n(&thread.current, done ? 0 : call, __ATOMIC_RELEASE);
  }

  /// The record at a position of the ring.
  CallRecord& collective(std::uint64_t position) { return file_->collectives()[position & last_collective_]; }

  /// Keeps what the program says. Any thread.
  void note(NoteKind kind, std::uint8_t level, std::uint8_t flags, std::uint64_t number, const char* text);

  /// Measures how long calls take, from now on.
  void measure_durations() {
    store(timed_, true);
    store(header().timed, 1U);
  }

  /// This thread's slot; nullptr where there are more threads than slots. Given back when the thread ends.
  ThreadRecord* claim_thread();

  /// A slot for a communicator that has come into being; -1 where there are too many.
  int add_communicator(const CommunicatorRecord& communicator);
  void free_communicator(int slot);
  void flag_communicator(int slot, std::uint32_t flag);

  /// A number for a derived datatype, the same for equal ones; kUnknownDatatype where there are too many.
  DatatypeId add_datatype(const TypeSignature& signature, const char* name);

  /// Room for one vector collective's blocks: `sends` and `expects`, `size` PeerBlocks each, zeroed. Null
  /// pointers where it does not fit. `publish` before the call is begun.
  struct Vectors {
    VectorHead* head = nullptr;
    PeerBlock* sends = nullptr;
    PeerBlock* expects = nullptr;
  };
  Vectors reserve_vectors(int size);

  /// Adds how much device memory the process holds now to its history, unless it is too early for that. One
  /// thread.
  void sample_memory(std::uint64_t now = ticks_now());

  /// Copies the lines of /proc/self/maps that name a file. Not for the hot path (reads a file).
  void refresh_maps();

  /// MPI_THREAD_SERIALIZED or less: the program makes its calls one at a time. Before the first call.
  void expect_one_call_at_a_time() { one_at_a_time_ = true; }

  /// Whether an address lies in the mapping: a SIGBUS there is ours (somebody truncated the file).
  /// Signal-safe.
  bool owns(const void* address) const {
    const auto* begin = reinterpret_cast<const char*>(file_);
    return address >= begin && address < begin + bytes();
  }
  /// Puts private memory in the mapping's place, so that the job goes on unrecorded. Signal-safe.
  void detach();

 private:
  template <class T>
  static T load(const T& word) {
    return __atomic_load_n(&word, __ATOMIC_RELAXED);
  }
  template <class T>
  static void store(T& word, T value) {
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
  }
  static void enter(ThreadRecord& thread, Ring ring, std::uint64_t position) {
    __atomic_store_n(&thread.current, 2 * (position + 1) + static_cast<std::uint64_t>(ring),
                     __ATOMIC_RELEASE);
  }

  [[gnu::always_inline]] Ticket write(const Draft& draft, Ring ring, std::uint64_t sequence,
                                      std::uint64_t chain, std::uint64_t balance, ThreadRecord* thread) {
    const bool numbered = ring == Ring::Collectives;
    const std::uint64_t last = numbered ? last_collective_ : kUnnumbered - 1;
    std::uint64_t& next = file_->header.positions[static_cast<std::size_t>(ring)];
    // A locked add costs 20 cycles: only where threads may call at the same time.
    const std::uint64_t position =
        one_at_a_time_ ? load(next) : __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    if (one_at_a_time_) store(next, position + 1);
    CallRecord* const ring_begin = numbered ? file_->collectives() : file_->unnumbered;
    CallRecord& record = ring_begin[position & last];
    __builtin_prefetch(&ring_begin[(position + 1) & last], 1);
    const std::uint32_t generation = whole_stamp(position, last + 1);
    store(record.stamp, generation | 1);
    std::atomic_thread_fence(std::memory_order_release);
    record.communicator = draft.communicator;
    record.function = draft.function;
    record.sequence = sequence;
    record.chain = chain;
    record.balance = balance;
    record.started = ticks_now();
    record.count = draft.count;
    record.root = draft.root;
    record.returned = 0;
    record.launch = draft.launch;
    record.datatype = draft.datatype;
    record.op = draft.op;
    record.site = draft.site;
    record.tag = static_cast<std::uint16_t>(draft.tag);
    __atomic_store_n(&record.stamp, generation, __ATOMIC_RELEASE);
    Ticket ticket;
    ticket.record = &record;
    ticket.thread = thread;
    ticket.timed = load(timed_);
    ticket.position = position;
    return ticket;
  }

  std::size_t bytes() const { return recorder_bytes(last_collective_ + 1); }

  RecorderFile* file_ = nullptr;
  std::uint64_t last_collective_ = kCollectives - 1;
  bool one_at_a_time_ = false;
  bool timed_ = false;
};

}  // namespace accel
