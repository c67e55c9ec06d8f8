/* accel.h: what libaccel promises to the outside.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Needs no library to link against. The numbers are part of the contract: scripts and schedulers may
 * rely on them. */
#ifndef ACCEL_ACCEL_H
#define ACCEL_ACCEL_H

#define ACCEL_VERSION_MAJOR 0
#define ACCEL_VERSION_MINOR 1
#define ACCEL_VERSION_PATCH 0
#define ACCEL_VERSION "0.1.0"

/* Exit status of accelrun, and of a job that libaccel ends, when there is a verdict. Without one, accelrun
 * returns the job's own status (128 + signal for a signal). */
enum accel_exit_status {
  ACCEL_EXIT_MISMATCH = 80,   /* ranks called different collectives, or the same one with other arguments */
  ACCEL_EXIT_DEADLOCK = 81,   /* ranks wait for each other in a circle, or ACCEL_TIMEOUT passed */
  ACCEL_EXIT_EARLY_EXIT = 82, /* a rank finalized, exited or was killed while others wait for it */
  ACCEL_EXIT_OUT_OF_MEMORY = 83, /* an allocation on a GPU failed, and with it a rank */
  ACCEL_EXIT_REQUEUE = 84,       /* accelrun --on-oom requeue: a smaller batch is recorded, start me again */
  ACCEL_EXIT_CRASH = 85,         /* a rank died by SIGSEGV, SIGABRT, SIGBUS, SIGFPE or SIGILL */
  ACCEL_EXIT_USAGE = 64,         /* accelrun: wrong option or value, missing command */
  ACCEL_EXIT_UNAVAILABLE = 69,   /* accelrun doctor: something is wrong with the machine */
  ACCEL_EXIT_INTERNAL = 70,      /* accelrun: its own failure */
  ACCEL_EXIT_CANNOT_START = 125, /* accelrun: the command could not be started */
  ACCEL_EXIT_NOT_EXECUTABLE = 126,
  ACCEL_EXIT_NOT_FOUND = 127
};

#endif
