// MPI_Init, MPI_Finalize, MPI_Abort and the functions that end the life of a datatype: written out, since
// each is different.
#include <dirent.h>

#include <algorithm>

#include "interpose/export.h"
#include "interpose/mpi/communicators.h"
#include "interpose/mpi/datatypes.h"
#include "interpose/mpi/errors.h"
#include "interpose/mpi/wrapper.h"
#include "record/fixed_text.h"
#include "record/process_stat.h"
#include "report/log.h"

namespace accel {
namespace {

/// How long MPI_Finalize waits for the leader to have seen this rank's last calls.
constexpr std::int64_t kLastLook = 500'000'000;

std::int32_t count_threads() {
  const auto stat = process_stat(getpid());
  return stat ? stat->threads : 0;
}

/// Open MPI's MPI_Finalize is a fence among all ranks; its mpirun hangs or crashes (4.1.4 with PMIx 4.2: 1 in
/// 10) when ranks end while others are in it. So the fence begins when all are there, and a verdict has come
/// before. Nothing changes for the program: it would wait for the others anyway.
void wait_for_all() {
  Process& process = Process::self();
  World* world = process.board().world(process.world_key());
  if (world == nullptr) return;
  world->finalizing.fetch_add(1);
  for (useconds_t pause = 100; world->finalizing.load() < world->joined.load();
       pause = std::min<useconds_t>(2 * pause, 5000)) {
    // What others still need of our messages must go on.
    int arrived = 0;
    mpi().Iprobe(abi().any_source, abi().any_tag, abi().comm_self, &arrived, nullptr);
    usleep(pause);
  }
}

/// Runs last of all callbacks in MPI_Finalize, since attributes of MPI_COMM_SELF are deleted in reverse order
/// and ours was the first: from here on the application communicates no more (HDF5 and PETSc do so in
/// theirs).
int on_self_deleted(Handle, int, void*, void*) {
  if (session.load() == nullptr) return 0;
  Recorder* recorder = session.load()->recorder;
  const CommunicatorInfo* world = communicator(abi().comm_world);
  if (world != nullptr) {
    Recorder::Draft draft;
    draft.function = Function::Finalize;
    draft.communicator = static_cast<std::uint16_t>(world->slot);
    const Agreement agreement{agreed_start(Function::Finalize, 0, 0), 0};
    recorder->begin_numbered(draft, agreement, thread_record(*recorder));
  }
  recorder->header().phase = Phase::Finalized;
  // A mismatch that nobody else notices (another op, another datatype) must be told before the job is gone.
  if (abi().family == Abi::Family::OpenMpi) wait_for_all();
  Process::self().wait_for_leader(kLastLook);
  session.store(nullptr);
  return 0;
}

/// Open MPI takes no null pointer here. MPI_COMM_SELF duplicated: the copy has no such attribute.
int on_self_copied(Handle, int, void*, void*, void*, int* copied) {
  *copied = 0;
  return 0;
}

void watch_finalize() {
  int keyval = -1;
  if (mpi().Comm_create_keyval(reinterpret_cast<void*>(on_self_copied),
                               reinterpret_cast<void*>(on_self_deleted), &keyval, nullptr) == 0) {
    mpi().Comm_set_attr(abi().comm_self, keyval, nullptr);
  }
}

void after_init(std::int32_t threads_before) {
  Process& process = Process::self();
  Recorder* recorder = process.recorder();
  const Abi* known = detect_abi();
  if (known == nullptr) {
    log().say(LogLevel::Warning,
              "this MPI library is of no family that libaccel knows; the job goes on unobserved");
    return;
  }
  int rank = 0;
  int size = 1;
  mpi().Comm_rank(known->comm_world, &rank);
  mpi().Comm_size(known->comm_world, &size);
  RecorderHeader& header = recorder->header();
  set_text(header.library, known->library_version);
  mpi().Query_thread(&header.thread_level);
  constexpr int kThreadMultiple = 3;
  if (header.thread_level < kThreadMultiple) recorder->expect_one_call_at_a_time();
  // All threads that are there now besides the application's, and our agent to come.
  header.library_threads = count_threads() - threads_before + 1;
  load_datatypes();
  load_communicators(*recorder, process.world_key(), rank, size);
  install_error_handler();
  watch_finalize();
  process.join(rank, size, kUsesMpi);
  log().say(LogLevel::Info, std::string("observing MPI calls: ") + known->library_version);
  static Session now;
  now = {recorder, &process.sites(), process.settings().check == Check::Sync};
  session.store(&now, std::memory_order_release);
}

template <class Initialize>
int initialize(Initialize&& really) {
  if (thread_state.nested != 0) return really();  // MPI_Init -> PMPI_Init
  const DepthGuard guard(thread_state.nested);
  if (!Process::self().start(kUsesMpi)) return really();
  const std::int32_t threads_before = count_threads();
  const int result = really();
  if (result == 0) after_init(threads_before);
  return result;
}

template <class Finalize>
int finalize(Finalize&& really) {
  // No nesting guard: what callbacks of the application call in there are calls of the application.
  if (session.load() == nullptr || thread_state.nested != 0) return really();
  session.load()->recorder->header().phase = Phase::InFinalize;
  const int result = really();
  if (thread_state.record != nullptr) __atomic_store_n(&thread_state.record->current, 0, __ATOMIC_RELEASE);
  return result;
}

template <class Abort>
int abort_job(int code, Abort&& really) {
  if (const Session* now = session.load()) {
    Recorder* recorder = now->recorder;
    // What the leader has to say comes first: the program may abort because of what a mismatch did to its
    // data.
    Process::self().wait_for_leader(kLastLook);
    recorder->header().abort_code = code;
    recorder->header().phase = Phase::Aborting;
  }
  return really();
}

}  // namespace
}  // namespace accel

using namespace accel;

#define ACCEL_LIFECYCLE(prefix)                                                                \
  ACCEL_EXPORT int prefix##Init(int* argc, char*** argv) {                                     \
    static constinit Real real(#prefix "Init");                                                \
    auto* next = real.get<int(int*, char***)>();                                               \
    if (next == nullptr) return lacks(real.symbol());                                          \
    return initialize([&] { return next(argc, argv); });                                       \
  }                                                                                            \
  ACCEL_EXPORT int prefix##Init_thread(int* argc, char*** argv, int required, int* provided) { \
    static constinit Real real(#prefix "Init_thread");                                         \
    auto* next = real.get<int(int*, char***, int, int*)>();                                    \
    if (next == nullptr) return lacks(real.symbol());                                          \
    return initialize([&] { return next(argc, argv, required, provided); });                   \
  }                                                                                            \
  ACCEL_EXPORT int prefix##Finalize() {                                                        \
    static constinit Real real(#prefix "Finalize");                                            \
    auto* next = real.get<int()>();                                                            \
    if (next == nullptr) return lacks(real.symbol());                                          \
    return finalize([&] { return next(); });                                                   \
  }                                                                                            \
  ACCEL_EXPORT int prefix##Abort(Handle communicator, int code) {                              \
    static constinit Real real(#prefix "Abort");                                               \
    auto* next = real.get<int(Handle, int)>();                                                 \
    if (next == nullptr) return lacks(real.symbol());                                          \
    return abort_job(code, [&] { return next(communicator, code); });                          \
  }                                                                                            \
  ACCEL_EXPORT int prefix##Type_free(void* type) {                                             \
    static constinit Real real(#prefix "Type_free");                                           \
    auto* next = real.get<int(void*)>();                                                       \
    if (next == nullptr) return lacks(real.symbol());                                          \
    if (session.load() != nullptr) forget_datatype(abi().load(type));                          \
    return next(type);                                                                         \
  }

ACCEL_LIFECYCLE(MPI_)
ACCEL_LIFECYCLE(PMPI_)
