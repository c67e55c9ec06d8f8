// What we do on the way of signals that end the process. Each keeps its effect: the same core dump, the same
// status.
#pragma once

namespace accel {

/// Before the real MPI_Init: notes which fatal signals the application handles itself. Those are its own
/// business (Julia and Java take SIGSEGV in their stride); what MPI_Init installs only prints and dies.
void note_application_handlers();

/// After it. SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, where the application has no handler: note the signal
/// in the record, give the leader a moment to report (the crash may be what a mismatch did to the heap), then
/// whatever was installed before, or the default. SIGTERM, only where it has its default disposition: before
/// dying, give the leader the time to say what this rank was waiting for and who was gone. Also the signal
/// that takes stacks.
void install_signal_handlers();

}  // namespace accel
