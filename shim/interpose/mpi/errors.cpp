#include "interpose/mpi/errors.h"

#include <accel/accel.h>
#include <unistd.h>

#include "act/ending.h"
#include "interpose/export.h"
#include "interpose/mpi/wrapper.h"
#include "report/log.h"

namespace accel {
namespace {

/// For the leader to see the other ranks' calls too: a mismatch settles in 100 ms.
constexpr std::int64_t kPatience = 300'000'000;

Handle our_handler = 0;

/// For a verdict to come; ends the process if one does.
void wait_for_verdict() {
  Process& process = Process::self();
  const std::int64_t deadline = monotonic_ns() + kPatience;
  while (process.recorder() != nullptr && monotonic_ns() < deadline) {
    process.wait_for_leader(50'000'000);
    usleep(1000);
  }
}

std::string current_function(Recorder& recorder) {
  const ThreadRecord* thread = thread_record(recorder);
  const std::uint64_t current = thread != nullptr ? thread->current : 0;
  if (current < 2) return "an MPI call";
  const std::uint64_t position = current / 2 - 1;
  const CallRecord& record =
      (current & 1) != 0 ? recorder.file().unnumbered[position % kUnnumbered] : recorder.collective(position);
  return std::string(traits(record.function).name);
}

/// Instead of MPI_ERRORS_ARE_FATAL, then as it.
void on_error(void* communicator, int* code, ...) {
  Recorder* recorder = Process::self().recorder();
  if (recorder != nullptr) {
    int error_class = 0;
    mpi().Error_class(*code, &error_class);
    recorder->header().error_class = static_cast<std::uint32_t>(error_class);
    wait_for_verdict();
    recorder->header().phase = Phase::Aborting;
    // The library's own message will name the function that we call now, not the one that failed.
    char text[1024] = {};
    int length = 0;
    mpi().Error_string(*code, text, &length);
    log().say(LogLevel::Error,
              std::string("MPI reports an error in ") + current_function(*recorder) + ": " + text);
  }
  const Handle handle = abi().load(communicator);
  mpi().Comm_set_errhandler(handle, abi().errors_are_fatal);
  mpi().Comm_call_errhandler(handle, *code);
}

int error_class_of(const Verdict& verdict) {
  switch (verdict.fields.empty() ? Field::Kind : verdict.fields.front()) {
    case Field::Count:
    case Field::Peers:
      return abi().err_count;
    case Field::Datatype:
      return abi().err_type;
    case Field::ReduceOp:
      return abi().err_op;
    case Field::Root:
      return abi().err_root;
    case Field::Kind:
    case Field::Size:
    case Field::Rank:
    case Field::Captured:
    case Field::UniqueId:
    case Field::Configuration:
      break;
  }
  return abi().err_other;
}

bool ends_the_job(Handle communicator) {
  Handle handler = 0;
  if (mpi().Comm_get_errhandler(communicator, &handler) != 0) return true;
  const bool fatal = handler == our_handler || handler == abi().errors_are_fatal;
  mpi().Errhandler_free(&handler);
  return fatal;
}

}  // namespace

void install_error_handler() {
  Handle present = 0;
  if (mpi().Comm_get_errhandler(abi().comm_world, &present) != 0) return;
  const bool fatal = present == abi().errors_are_fatal;
  mpi().Errhandler_free(&present);
  if (!fatal || mpi().Comm_create_errhandler(on_error, &our_handler) != 0) return;
  mpi().Comm_set_errhandler(abi().comm_world, our_handler);
}

int raise_mismatch(Handle communicator, const Verdict& verdict, const std::string& text) {
  if (Process::self().settings().on_error == OnError::Abort || ends_the_job(communicator)) {
    flush_stdio();
    end_process(Process::self().board(), ACCEL_EXIT_MISMATCH);
  }
  // MPI_MAX_ERROR_STRING is 256 in Open MPI; the whole report has been printed.
  constexpr std::size_t kLongest = 250;
  int code = abi().err_other;
  if (mpi().Add_error_code(error_class_of(verdict), &code) == 0) {
    mpi().Add_error_string(code, text.substr(0, kLongest).c_str());
  } else {
    code = error_class_of(verdict);
  }
  mpi().Comm_call_errhandler(communicator, code);
  return code;
}

}  // namespace accel

using namespace accel;

/// An application that asks for the present handler gets the one it would find without us.
#define ACCEL_GET_ERRHANDLER(prefix)                                                                      \
  ACCEL_EXPORT int prefix##Comm_get_errhandler(Handle communicator, void* handler) {                      \
    static constinit Real real(#prefix "Comm_get_errhandler");                                            \
    auto* next = real.get<int(Handle, void*)>();                                                          \
    if (next == nullptr) return lacks(real.symbol());                                                     \
    const int result = next(communicator, handler);                                                       \
    if (result == 0 && our_handler != 0 && abi().load(handler) == our_handler) hide_our_handler(handler); \
    return result;                                                                                        \
  }

namespace {

void hide_our_handler(void* handler) {
  Handle ours = our_handler;
  mpi().Errhandler_free(&ours);  // the reference that the caller was to get
  if (abi().handle_bytes == 4) {
    *static_cast<std::uint32_t*>(handler) = static_cast<std::uint32_t>(abi().errors_are_fatal);
  } else {
    *static_cast<Handle*>(handler) = abi().errors_are_fatal;
  }
}

}  // namespace

ACCEL_GET_ERRHANDLER(MPI_)
ACCEL_GET_ERRHANDLER(PMPI_)
