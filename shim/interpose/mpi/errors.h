// Errors out of the MPI library's own mouth.
#pragma once
#include "interpose/mpi/abi.h"
#include "judge/verdict.h"

namespace accel {

/// Puts our error handler on MPI_COMM_WORLD in the place of MPI_ERRORS_ARE_FATAL: its children inherit it, a
/// handler of the application's own wins. When MPI reports an error it runs in the failing call, waits for
/// the leader to have looked (the error may be the first sign of a mismatch), then does what
/// MPI_ERRORS_ARE_FATAL does.
void install_error_handler();

/// An error of the class that fits, with our text, through the communicator's error handler. Returns the
/// error code if the handler returns.
int raise_mismatch(Handle communicator, const Verdict& verdict, const std::string& text);

}  // namespace accel
