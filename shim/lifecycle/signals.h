// What we do on the way of signals that end the process. Each keeps its effect: the same core dump, the same status.
#pragma once

namespace accel {

/// SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT: note it in the record, then whatever was installed before (or the
/// default). SIGTERM, only where it has its default disposition: before dying, give the leader the time to say what
/// this rank was waiting for and who was gone. Also the signal that takes stacks.
void install_signal_handlers();

}  // namespace accel
