// The recorder file: what one process leaves for others to read, while it lives and after it is gone.
//
// One fixed struct with a ring of records behind it, mapped MAP_SHARED by its owner alone, who is its only
// writer. Readers copy parts of it with pread and trust nothing in them: the layout has no offsets or lengths
// that could lead outside. All of it is plain words; where a reader could catch a half-written entry, a stamp
// (odd: being written) stands in front.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "record/agreed_stop.h"
#include "record/clock.h"
#include "signature/agreement.h"
#include "signature/datatype.h"
#include "signature/driver.h"
#include "signature/function.h"

namespace accel {

inline constexpr std::uint64_t kRecorderMagic = 0x315243454c454343;  // "CCELECR1"
inline constexpr std::uint32_t kLayoutVersion = 7;

/// A call in the ring; 64 bytes, one cache line.
struct alignas(64) CallRecord {
  std::uint32_t stamp;         ///< 2 * generation of the ring; odd while being written
  std::uint16_t communicator;  ///< slot in RecorderFile::communicators
  Function function;
  std::uint64_t sequence;  ///< number on the communicator, from 1; of an NCCL pair: on the pair and in that
                           ///< direction; 0 for other unnumbered calls
  std::uint64_t chain;     ///< hash of all agreements on the communicator up to this call
  std::uint64_t balance;   ///< sum of all balances up to this call
  std::uint64_t started;   ///< ticks
  std::int64_t count;      ///< elements; for a vector collective where its PeerBlocks lie, see Vectors
  std::int32_t root;       ///< root, or the peer of a point-to-point call; communicator rank
  std::uint16_t returned;  ///< 0 while the call has not returned; then how long it took, see Duration
  std::uint16_t launch;    ///< NCCL: the launch on its stream, low bits; calls of one group have the same
  DatatypeId datatype;
  ReduceOpId op;
  std::uint16_t site;  ///< index into RecorderFile::sites
  std::uint16_t tag;   ///< low bits, for the report; NCCL: the stream, as RecorderFile::streams numbers them
};
static_assert(sizeof(CallRecord) == 64);

/// How long a call took, in 16 bits: ticks with a relative error below 1/2048, from 2 on. 1: not measured.
struct Duration {
  static constexpr int kMantissa = 11;

  static constexpr std::uint16_t encode(std::uint64_t ticks) {
    constexpr std::uint64_t kWhole = 1U << kMantissa;
    if (ticks < kWhole) return static_cast<std::uint16_t>(ticks < 2 ? 2 : ticks);
    const int shift = 63 - __builtin_clzll(ticks) - kMantissa;
    if (shift > 30) return 0xffff;
    return static_cast<std::uint16_t>(((shift + 1) << kMantissa) | ((ticks >> shift) & (kWhole - 1)));
  }
  /// 0: not measured, or not over.
  static constexpr std::uint64_t decode(std::uint16_t code) {
    constexpr std::uint64_t kWhole = 1U << kMantissa;
    if (code < 2) return 0;
    if (code < kWhole) return code;
    return (kWhole | (code & (kWhole - 1))) << ((code >> kMantissa) - 1);
  }
};

/// What a process does, as it says itself.
enum class Phase : std::uint32_t {
  Initializing,  ///< inside MPI_Init
  Running,
  InFinalize,  ///< has called MPI_Finalize; callbacks of the application may still communicate
  Finalized,   ///< will take part in nothing any more
  Exiting,     ///< called exit or _exit without MPI_Finalize
  Aborting,    ///< called MPI_Abort
};

/// Slot of a communicator; reused after it was freed.
struct alignas(64) CommunicatorRecord {
  std::uint32_t stamp;
  std::uint32_t flags;
  std::uint64_t key;  ///< same on all members, see interpose/mpi/communicators.h; 0: slot was never used
  std::int32_t rank;
  std::int32_t size;
  std::uint64_t sequence;  ///< number of the last call started
  std::uint64_t chain;
  std::uint64_t balance;
  std::uint64_t position;  ///< of that call in the ring of collectives
  std::uint64_t types;     ///< hash of all Agreement::datatype
  std::uint64_t born;      ///< where the ring of collectives stood when it came into being
};
inline constexpr std::uint16_t kNoCommunicator = 0xffff;
inline constexpr std::uint32_t kCommunicatorFreed = 1;
/// Something was used on it that cannot be compared (MPI_PACKED, an unknown datatype): no verdict on
/// mismatches.
inline constexpr std::uint32_t kCommunicatorOpaque = 2;
inline constexpr std::uint32_t kCommunicatorInter = 4;
inline constexpr std::uint32_t kCommunicatorWorld = 8;
/// NCCL's: calls on it return at once and wait on their streams.
inline constexpr std::uint32_t kCommunicatorOnStream = 16;
/// Given up by the program (ncclCommAbort): what happens on it is no fault.
inline constexpr std::uint32_t kCommunicatorAborted = 32;
/// Made with an ncclUniqueId that this process had used before, for that rank.
inline constexpr std::uint32_t kCommunicatorReused = 64;

/// What one rank has sent to another, or received from it, in NCCL point-to-point calls.
struct PairRecord {
  std::uint64_t communicator;  ///< key
  std::int32_t peer;           ///< communicator rank
  std::uint32_t direction;     ///< 0: sends to it, 1: receives from it
  std::uint64_t count;         ///< calls so far
  std::uint64_t chains[8];     ///< hash of the first n of them, for the latest n, at n % 8
};

/// What a thread is blocked in.
struct alignas(64) ThreadRecord {
  std::uint32_t tid;          ///< 0: free
  std::uint32_t driver_wait;  ///< DriverWait: waits in the CUDA driver
  std::uint64_t current;      ///< 0: in no call; else 2 * (position + 1) + ring
};

/// Where a thread waits for the GPU.
enum class DriverWait : std::uint32_t { None, Stream, Context, Event };

/// What this process holds of a GPU's memory, in bytes.
struct alignas(64) DeviceMemory {
  std::int64_t current[kMemoryKinds];
  std::int64_t total;  ///< of the kinds that are device memory
  std::int64_t peak;   ///< of total
  std::uint64_t allocations;
  std::uint64_t frees;
  std::uint64_t failures;
};

/// How much device memory the process has held over its life, on all devices. When all places are taken every
/// second sample goes, and as much time lies between two from then on.
struct MemorySample {
  std::uint64_t at;  ///< ticks
  std::int64_t bytes;
};
inline constexpr std::size_t kMemorySamples = 512;
struct alignas(64) MemoryHistory {
  std::uint32_t stamp;
  std::uint32_t count;
  std::uint64_t interval;  ///< ticks
  MemorySample samples[kMemorySamples];
};

/// How far the GPU has come on a stream with NCCL's work.
struct StreamRecord {
  std::uint64_t launched;   ///< launches so far
  std::uint64_t completed;  ///< of those, known to be complete
  std::uint64_t since;      ///< ticks: when that was learnt, or when the first launch after it was made
  std::uint32_t tracked;    ///< 1: what is not known to be complete is asked for
  std::uint32_t unused;
};
/// Stands in CallRecord::tag where the call went into a graph, and where there are too many streams.
inline constexpr std::uint16_t kCapturedStream = 0xffff;
inline constexpr std::uint16_t kUntrackedStream = 0xfffe;

/// What has become of a failed allocation.
enum class EpisodeState : std::uint8_t {
  None,
  Open,       ///< it may be tried again
  Recovered,  ///< a later one of that size succeeded, or the program went on without
  GaveUp,     ///< the thread has asked how much is free, as allocators do before they report the error
};

/// An allocation that failed, with what was tried after it.
struct alignas(64) MemoryEpisode {
  std::uint32_t stamp;
  EpisodeState state;
  std::uint8_t inside;      ///< Library that asked for it: NCCL
  std::uint8_t impossible;  ///< more than the device has at all
  std::uint8_t kind;        ///< MemoryKind; Count_: not an allocation (a launch, a module, ...)
  DriverFunction function;
  std::uint16_t site;
  std::int32_t device;
  std::uint32_t tid;
  std::uint32_t attempts;
  std::uint64_t bytes;    ///< that the latest attempt asked for; 0: unknown
  std::uint64_t free;     ///< as the driver said right after
  std::uint64_t total;    ///< of the device
  std::int64_t own;       ///< device memory of this process then
  std::int64_t idle;      ///< what the device's pool for cuMemAllocAsync kept without using it
  std::uint64_t started;  ///< ticks, of the first attempt
};

/// The first error that broke a context.
struct BrokenContext {
  std::int32_t error;  ///< CUresult; 0: none
  DriverFunction function;
  std::uint16_t site;
  std::uint64_t at;  ///< ticks
};

/// A place in the program from which calls come.
inline constexpr int kSiteDepth = 29;
struct CallSite {
  std::uint64_t key;  ///< 0: free
  std::uint16_t depth;
  std::uint16_t flags;
  std::uint32_t text;             ///< 1 + offset in RecorderFile::site_text, up to a NUL; 0: none
  std::uint64_t pcs[kSiteDepth];  ///< innermost first: return addresses
  std::uint64_t complete;         ///< 1 when the above stands
};
static_assert(sizeof(CallSite) == 256);
inline constexpr std::uint16_t kSiteInternal = 1;  ///< a library calling itself

/// What a program says of itself (accel_log, accel_region_begin, ...), or we of its life. Longer texts go on
/// in the notes that follow.
inline constexpr std::size_t kNoteText = 228;
enum class NoteKind : std::uint8_t { None, Log, RegionBegin, RegionEnd, Event, Continued };
struct alignas(64) Note {
  std::uint32_t stamp;  ///< as CallRecord's
  NoteKind kind;
  std::uint8_t level;    ///< LogLevel
  std::uint8_t flags;    ///< kNote*
  std::uint8_t more;     ///< the text goes on in the note that follows
  std::uint64_t at;      ///< ticks
  std::uint64_t number;  ///< of NoteKind::Log with kNoteInOrder: how many such before it on this rank
  std::uint32_t tid;
  char text[kNoteText];  ///< up to a NUL, or whole
};
static_assert(sizeof(Note) == 256);
inline constexpr std::uint8_t kNoteMainOnly = 1;  ///< of the main process alone
inline constexpr std::uint8_t kNoteInOrder = 2;   ///< the ranks one after another

/// A derived datatype in use.
struct alignas(64) DatatypeRecord {
  std::uint64_t hash;
  std::uint64_t length;
  BasicType only;
  char name[39];
};

/// A thread's stack, taken on request.
inline constexpr int kStackDepth = 61;
struct StackRecord {
  std::uint32_t tid;
  std::uint32_t request;  ///< the request it answers; 0: none
  std::uint32_t depth;
  std::uint32_t state;  ///< as /proc/PID/stat writes it: 'R', 'S', 'D', ...; 0: not known
  std::uint64_t pcs[kStackDepth];
};

/// The inner end of a thread's stack in the kernel's care, where no signal could go: a reader unwinds it.
inline constexpr std::size_t kStackCopyBytes = 96 * 1024;
struct StackCopy {
  std::uint32_t tid;      ///< 0: free
  std::uint32_t request;  ///< the request it answers
  std::uint64_t pc;       ///< to which the system call returns
  std::uint64_t sp;       ///< the address of what stands first in `memory`
  std::uint64_t bytes;    ///< of it
  char memory[kStackCopyBytes];
};

inline constexpr std::size_t kMaxStreams = 256;
inline constexpr std::size_t kMaxDevices = 16;
inline constexpr std::size_t kMaxEpisodes = 64;
inline constexpr std::size_t kMaxThreads = 128;
inline constexpr std::size_t kMaxCommunicators = 1024;
inline constexpr std::size_t kMaxSites = 1024;
inline constexpr std::size_t kMaxDatatypes = 512;
inline constexpr std::size_t kMaxStacks = 8;
inline constexpr std::size_t kMaxStackCopies = 2;
inline constexpr std::size_t kCollectives = 16384;  ///< by default; a power of two, as all rings' sizes
inline constexpr std::size_t kMostCollectives = std::size_t{1} << 26;
inline constexpr std::size_t kNotes = 1024;
inline constexpr std::size_t kUnnumbered = 4096;
inline constexpr std::size_t kMaxPairs = 4096;
inline constexpr std::size_t kVectorWords = 65536;
inline constexpr std::size_t kMapsBytes = 256 * 1024;
inline constexpr std::size_t kPythonBytes = 64 * 1024;
inline constexpr std::size_t kSiteTextBytes = 256 * 1024;

/// A vector collective's blocks in the vector area: a ring of words. `count` of the record is the number of
/// words ever written before it; there lie 2 words (size, flags), then `size` PeerBlocks sent and `size`
/// expected.
struct VectorHead {
  std::uint64_t position;  ///< same as the record's count: tells an overwritten place
  std::uint32_t size;
  std::uint32_t flags;
};
inline constexpr std::uint32_t kVectorSends = 1;
inline constexpr std::uint32_t kVectorExpects = 2;
inline constexpr std::uint32_t kVectorSame = 4;  ///< what is expected must be the same on all ranks

/// Of a copy of another node's recorder file: how its process was, as the leader there has found. All times
/// of a copy are by the clock of the node that it lies on.
struct CopyStatus {
  std::int64_t at_ns;  ///< when it was made; monotonic. 0: this is no copy
  ClockPair now;       ///< the other node's ticks at that moment
  std::int64_t gone_since_ns;
  std::int32_t signal;
  std::uint16_t signal_inferred;
  std::uint8_t alive;
  std::uint8_t no_other_thread;
};

struct RecorderHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t bytes;  ///< sizeof(RecorderFile)
  std::int32_t pid;
  std::uint32_t uid;
  std::uint64_t start_time;  ///< of the process, field 22 of /proc/PID/stat: tells a reused pid
  std::uint64_t world_key;   ///< same for all ranks of one MPI_COMM_WORLD
  std::int32_t world_rank;   ///< -1 until known
  std::int32_t world_size;
  ClockPair begin;   ///< when the file was made
  ClockPair latest;  ///< refreshed by the agent thread
  std::int64_t begin_realtime_ns;
  Phase phase;
  std::int32_t exit_status;   ///< of exit or _exit, once Exiting; -1 unknown
  std::int32_t fatal_signal;  ///< caught on its way to the default action; 0 none
  std::int32_t terminated;    ///< 1: SIGTERM came from outside
  std::int32_t abort_code;
  std::int32_t thread_level;     ///< MPI_THREAD_*, -1 unknown
  std::int32_t library_threads;  ///< threads that appeared during MPI_Init, plus our agent
  std::uint32_t error_class;     ///< MPI reported an error of this class; 0 none
  std::uint64_t positions[3];    ///< records ever begun in each ring
  std::uint64_t collectives;     ///< that the ring of them holds
  std::uint32_t timed;           ///< 1: it is measured how long calls take
  std::uint64_t vector_words;    ///< words ever written to the vector area
  std::uint32_t communicators;   ///< slots ever used
  std::uint32_t pairs;           ///< of RecorderFile::pairs in use
  std::uint32_t libraries;       ///< of kUses*, those that it has initialised
  std::uint32_t threads;
  std::uint32_t episodes;  ///< ever begun; the latest kMaxEpisodes are kept
  BrokenContext broken;
  std::uint32_t maps_bytes;
  std::uint32_t maps_stamp;
  std::uint32_t python;           ///< 1: a Python interpreter lives in the process
  std::uint32_t python_bytes;     ///< of RecorderFile::python
  std::uint32_t python_request;   ///< the request that those answer
  std::uint32_t site_text_bytes;  ///< ever asked for of RecorderFile::site_text
  char host[64];
  char program[128];
  char library[64];             ///< "Open MPI v4.1.4"
  char gpu[64];                 ///< "NVIDIA A100-SXM4-80GB": the first one that it took memory on
  char nccl[256];               ///< "NCCL 2.28.9 (/usr/lib/libnccl.so.2)"
  char nccl_environment[1024];  ///< NCCL_* as NAME=value lines, sorted
  CopyStatus copied;            ///< zero in the file that the process writes itself
};
static_assert(sizeof(RecorderHeader) <= 4096);
inline constexpr std::uint32_t kUsesMpi = 1;
inline constexpr std::uint32_t kUsesNccl = 2;
inline constexpr std::uint32_t kUsesCuda = 4;

struct RecorderFile {
  union {
    RecorderHeader header;
    char header_page[4096];
  };
  ThreadRecord threads[kMaxThreads];
  StreamRecord streams[kMaxStreams];
  DeviceMemory memory[kMaxDevices];
  MemoryHistory memory_history;
  MemoryEpisode episodes[kMaxEpisodes];
  CommunicatorRecord communicators[kMaxCommunicators];
  StackRecord stacks[kMaxStacks];
  StackCopy stack_copies[kMaxStackCopies];
  DatatypeRecord datatypes[kMaxDatatypes];
  CallSite sites[kMaxSites];
  Note notes[kNotes];
  CallRecord unnumbered[kUnnumbered];
  PairRecord pairs[kMaxPairs];
  std::uint64_t vectors[kVectorWords];
  char python[kPythonBytes];  ///< frames of all threads, see lifecycle/python.cpp
  char site_text[kSiteTextBytes];
  char maps[kMapsBytes];  ///< lines of /proc/self/maps that name a file
  /// RecorderHeader::collectives of them.
  CallRecord* collectives() { return reinterpret_cast<CallRecord*>(this + 1); }
};
static_assert(sizeof(RecorderFile) % alignof(CallRecord) == 0);
constexpr std::size_t recorder_bytes(std::size_t collectives) {
  return sizeof(RecorderFile) + collectives * sizeof(CallRecord);
}
static_assert(recorder_bytes(kCollectives) < std::size_t{4} << 20, "memory a rank");

/// The rings, as RecorderHeader::positions numbers them; ThreadRecord::current knows those of calls.
enum class Ring : std::uint32_t { Collectives = 0, Unnumbered = 1, Notes = 2 };

/// `stamp` of the entry at `position` of a ring of that size, once it has been written.
constexpr std::uint32_t whole_stamp(std::uint64_t position, std::uint64_t capacity) {
  return static_cast<std::uint32_t>((position / capacity + 1) * 2);
}

/// What the ranks of one world share on this node.
struct World {
  std::atomic<std::uint64_t> key;         ///< 0: free
  std::atomic<std::uint32_t> members;     ///< processes that know their rank
  std::atomic<std::uint32_t> joined;      ///< how many are in MPI,
  std::atomic<std::uint32_t> finalizing;  ///< and are through with it
  AgreedStop breakpoint;                  ///< of accel_check_breakpoint
  std::atomic<std::uint32_t> said;        ///< kSaid*: what its leaders have warned of, of which one is enough

  /// Whether nobody has said it before.
  bool is_first_to_say(std::uint32_t what) { return (said.fetch_or(what) & what) == 0; }
};
inline constexpr std::uint32_t kSaidSetup = 1;
inline constexpr std::uint32_t kSaidGpus = 2;
inline constexpr std::size_t kMaxWorlds = 16;

/// All ranks of a communicator are to get a signal before the same of its numbered calls (accelrun ctl RUN
/// trigger). Whoever asks fills it in and then changes `number`; when `armed` says that all members look out
/// for it, it asks `stop` for a call that nobody has come to.
struct StopRequest {
  std::atomic<std::uint32_t> number;        ///< changes with every request
  std::atomic<std::int32_t> signal;         ///< that every rank sends itself
  std::atomic<std::uint64_t> communicator;  ///< key; 0: none, nothing is asked for
  std::atomic<std::uint64_t> base;          ///< number of a call on it: `stop` counts from there
  std::atomic<std::uint32_t> armed;         ///< processes that look out for it
  std::atomic<std::uint32_t> stopped;       ///< of those, who have sent themselves the signal
  std::atomic<std::uint32_t> ends;  ///< 1: the signal ends processes, so that it is no fault when they go
  AgreedStop stop;
};

/// Where leaders of other hosts are received, and the secret that they are known by.
struct MeetingPlace {
  std::uint8_t address[16];  ///< as the network has it; IPv4: the first four
  std::uint16_t port;
  std::uint8_t family;  ///< 4 or 6
  std::uint8_t unused;
  std::uint8_t token[32];
};

/// What this host's processes know of such places, see nodes/meeting.h.
struct MeetingPoint {
  std::atomic<std::uint32_t>
      wanted;                       ///< whether this host's leader is to receive others; 2: `host` says where
  std::atomic<std::uint32_t> port;  ///< where it does so; futex; 0: it does not yet
  std::atomic<std::uint32_t> stamp;    ///< changes with `guest`; odd: being written; 0: there is none
  std::atomic<std::uint32_t> members;  ///< of the communicator that `guest` comes from
  MeetingPlace host;
  MeetingPlace guest;  ///< where the hosts of that communicator meet; perhaps here
};

/// The one page that all processes of a run share: how the leader and the others call each other. Zero-filled
/// is its valid initial state, so that whoever comes first need not be known.
struct Board {
  std::atomic<std::uint32_t> looks_started;    ///< by the leader
  std::atomic<std::uint32_t> looks_completed;  ///< futex
  std::atomic<std::uint32_t> command;          ///< futex: changes whenever one of the below does
  std::atomic<std::uint32_t> stack_request;    ///< number of the last request for all ranks' stacks
  std::atomic<std::uint32_t> end_status;       ///< 80 to 85: with which the ranks of end_world end themselves
  std::atomic<std::uint32_t> end_count;        ///< how many ranks that are
  std::atomic<std::uint32_t> end_ready;        ///< how many of them stand ready to exit together
  std::atomic<std::int64_t> end_moment;        ///< monotonic ns at which they do so; 0: not set yet
  std::atomic<std::uint64_t> end_world;        ///< world key; 0: none
  std::atomic<std::uint32_t> notes;            ///< 1: a program has said something (Note)
  std::atomic<std::uint32_t> log_level;        ///< 1 + LogLevel, asked for from outside; 0: none is
  std::atomic<std::uint64_t> node;             ///< drawn by the first leader that talks to a coordinator
  std::atomic<std::uint32_t> leaving;  ///< 1: the last process of this node says goodbye to it, or has
  MeetingPoint meeting;
  StopRequest stop;
  World worlds[kMaxWorlds];

  /// A world, which gets its place at the first call; nullptr where there are too many.
  World* world(std::uint64_t key) {
    for (World& one : worlds) {
      std::uint64_t there = 0;
      if (one.key.compare_exchange_strong(there, key) || there == key) return &one;
    }
    return nullptr;
  }
};
static_assert(sizeof(Board) <= 4096);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace accel
