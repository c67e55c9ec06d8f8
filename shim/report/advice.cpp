#include "report/advice.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace accel {
namespace {

bool differs_in(const Verdict& verdict, Field field) {
  return std::find(verdict.fields.begin(), verdict.fields.end(), field) != verdict.fields.end();
}

std::string for_mismatch(const Verdict& verdict) {
  if (differs_in(verdict, Field::UniqueId))
    return "Make one ncclUniqueId for each communicator, and give it to all its processes.";
  if (differs_in(verdict, Field::Rank) || differs_in(verdict, Field::Size))
    return "Check what the launcher tells each process of its rank and of their number (RANK, WORLD_SIZE).";
  if (differs_in(verdict, Field::Kind))
    return "Find the branch that only some processes take (a condition on the rank, on data, on a file that "
           "exists): it may hold no collective that the others do not call, too.";
  if (differs_in(verdict, Field::Captured))
    return "Capture the call into a graph on all processes or on none.";
  if (differs_in(verdict, Field::Count) || differs_in(verdict, Field::Peers))
    return "Compare the shapes with which the processes come to this line. Uneven data: pad it to one size "
           "(pad_across_processes), or drop the last, smaller batch (drop_last).";
  return "Make the argument the same on all processes: a setting that is read from a file or a device may "
         "differ.";
}

std::string for_early_exit(const Verdict& verdict, const Evidence& evidence) {
  for (const Party& party : verdict.parties) {
    if (!party.blamed) continue;
    const ProcessEvidence& process = evidence.processes[party.process];
    if (process.signal == SIGKILL)
      return "SIGKILL mostly comes from the kernel's OOM killer (accelrun doctor tells), a scheduler's limit "
             "or "
             "another user.";
    if (process.signal == 0 && process.exit_status > 0)
      return "Its own output says why it has failed; the others only wait for it.";
    break;
  }
  return "Processes that stop early must stop together: reduce a flag in each step and let all act on it "
         "(Accelerate: "
         "set_trigger and check_trigger). Uneven batches: drop_last, or join_uneven_inputs.";
}

bool is_old_kernel() {
  utsname name{};
  int major = 0;
  int minor = 0;
  return uname(&name) == 0 && std::sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
         std::pair(major, minor) < std::pair(5, 5);
}

std::string for_late(const Verdict& verdict) {
  if (is_old_kernel())
    return "This kernel is older than 5.5, below which such hangs were seen: accelrun doctor tries it.";
  const bool somebody_missing = std::any_of(verdict.parties.begin(), verdict.parties.end(),
                                            [](const Party& party) { return party.blamed; });
  if (!verdict.absent.empty() && !somebody_missing && verdict.function != Function::NcclCommInitRank) {
    return "See whether the hosts of those ranks live and can be reached, and that libaccel is preloaded on "
           "all "
           "of them.";
  }
  if (!verdict.absent.empty() && !somebody_missing) {
    return "See why those ranks have not come: a host that is slow or gone, a process that was not started.";
  }
  if (!somebody_missing)
    return "All have made the call: look at the GPUs and the network (nvidia-smi, NCCL_DEBUG=INFO, accelrun "
           "doctor).";
  return "If it is only slow (a checkpoint, a data set, a compilation), raise ACCEL_TIMEOUT; else its "
         "traceback says "
         "what it waits for.";
}

}  // namespace

const char* section_of(const Verdict& verdict) {
  switch (verdict.kind) {
    case VerdictKind::Mismatch:
    case VerdictKind::Datatypes:
      return "mismatch";
    case VerdictKind::EarlyExit:
      return "early-exit";
    case VerdictKind::Crash:
      return "crash";
    case VerdictKind::OutOfMemory:
      return "out-of-memory";
    case VerdictKind::Deadlock:
      return "deadlock";
    case VerdictKind::TimeOut:
    case VerdictKind::Late:
      return is_old_kernel() ? "old-kernel" : "hang";
  }
  return "troubleshooting";
}

std::string advice(const Verdict& verdict, const Evidence& evidence) {
  switch (verdict.kind) {
    case VerdictKind::Mismatch:
      return for_mismatch(verdict);
    case VerdictKind::EarlyExit:
      return for_early_exit(verdict, evidence);
    case VerdictKind::OutOfMemory:
      return verdict.memory && verdict.memory->kind == static_cast<std::uint8_t>(MemoryKind::Pinned)
                 ? "Pinned memory is the host's: fewer data loader workers, or a smaller prefetch."
                 : "A smaller batch with more accumulation keeps the mathematics: accelrun --batch KNOB "
                   "--accum KNOB does "
                   "both until it fits.";
    case VerdictKind::Crash:
      return "The crash is the program's or a library's own; a core file (ulimit -c unlimited) or gdb shows "
             "where.";
    case VerdictKind::Deadlock:
      return verdict.waited_ns != 0 || verdict.function == Function::NcclSend ||
                     verdict.function == Function::NcclRecv
                 ? "Let all processes make their calls in one order; NCCL's sends and receives belong into a "
                   "group "
                   "(ncclGroupStart, ncclGroupEnd)."
                 : "Let all processes use their communicators in one and the same order.";
    case VerdictKind::TimeOut:
    case VerdictKind::Late:
      return for_late(verdict);
    case VerdictKind::Datatypes:
      return verdict.fields.empty() ? "It works as long as the sizes agree; use one datatype."
                                    : "Fill the configuration in the same way on all processes.";
  }
  return {};
}

}  // namespace accel
