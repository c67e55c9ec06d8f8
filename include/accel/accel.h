/* accel.h: what libaccel promises to the outside.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Needs no library to link against (with glibc before 2.34: -ldl). A program that includes it runs with and
 * without libaccel in front of it; without, every function here does nothing, at the cost of a load and a
 * branch. The numbers are part of the contract: scripts and schedulers may rely on them.
 *
 * All functions may be called from any thread at any time, also before MPI_Init and after MPI_Finalize; none
 * of them blocks, communicates or fails. They are not for signal handlers. Fortran: accel.f90, Python:
 * libaccel.py. */
#ifndef ACCEL_ACCEL_H
#define ACCEL_ACCEL_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

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

/* Levels of messages, as ACCEL_LOG_LEVEL names them; it lets WARNING and worse through by default. */
enum accel_level { ACCEL_DEBUG = 0, ACCEL_INFO = 1, ACCEL_WARNING = 2, ACCEL_ERROR = 3, ACCEL_CRITICAL = 4 };

/* Flags of a message. */
enum accel_log_flags {
  ACCEL_ALL_PROCESSES = 0,
  ACCEL_MAIN_PROCESS_ONLY = 1, /* of rank 0 alone */
  ACCEL_IN_ORDER = 2 /* the ranks' n-th such messages stand one after another; nobody waits for it */
};

/* A message is cut after so many bytes. */
#define ACCEL_MESSAGE_BYTES 3648

/* NOLINTBEGIN(modernize-use-nullptr): C as well */
#ifdef __cplusplus
extern "C" {
#endif

/* What libaccel.so exports as `accel_v1_functions`. Later versions add members at the end. */
struct accel_v1 {
  unsigned int version; /* 1 */
  unsigned int bytes;   /* size of the struct as the library knows it */
  int (*is_logged)(int level, unsigned int flags);
  void (*log)(int level, unsigned int flags, const char* text);
  void (*set_breakpoint)(void);
  int (*check_breakpoint)(void);
  long (*batch_size)(long fallback);
  int (*rank)(void);
  int (*size)(void);
  void (*region_begin)(const char* name);
  void (*region_end)(const char* name);
};

/* libaccel's functions, looked up once; NULL where it is not there. */
static inline const struct accel_v1* accel_v1_find(void) {
  static const struct accel_v1* found; /* the struct itself where there is none: never a valid table */
  const struct accel_v1* table = __atomic_load_n(&found, __ATOMIC_ACQUIRE);
  if (table == NULL) {
    table = (const struct accel_v1*)dlsym((void*)0 /* RTLD_DEFAULT */, "accel_v1_functions");
    if (table == NULL || table->version != 1 || table->bytes < sizeof *table)
      table = (const struct accel_v1*)&found;
    __atomic_store_n(&found, table, __ATOMIC_RELEASE);
  }
  return table == (const struct accel_v1*)&found ? NULL : table;
}

/* Puts a line into the job's log (stderr, or ACCEL_LOG_FILE), with the rank and the time before it. `format`
 * as printf's. Where the level is not logged the arguments are not formatted. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static inline void
accel_log(enum accel_level level, unsigned int flags, const char* format, ...) {
  const struct accel_v1* const accel = accel_v1_find();
  char text[ACCEL_MESSAGE_BYTES + 1];
  va_list arguments;
  if (accel == NULL || !accel->is_logged((int)level, flags)) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  accel->log((int)level, flags, text);
}

/* Break points, by which any rank stops all: accel_check_breakpoint() returns 1 on all ranks at the same
 * check (each rank's n-th, for the smallest n that no rank has passed yet) as soon as any rank has called
 * accel_set_breakpoint(), then 0 again until the next one is set. No rank waits for another. All ranks must
 * run on this host; otherwise a warning says so and no check returns 1. A check takes tens of nanoseconds,
 * and far less while it is not preloaded. */
static inline void accel_set_breakpoint(void) {
  const struct accel_v1* const accel = accel_v1_find();
  if (accel != NULL) accel->set_breakpoint();
}
static inline int accel_check_breakpoint(void) {
  const struct accel_v1* const accel = accel_v1_find();
  return accel != NULL ? accel->check_breakpoint() : 0;
}

/* The batch size, a rank's, that accelrun wants this attempt to use (ACCEL_BATCH_SIZE); `fallback` where it
 * wants none. */
static inline long accel_batch_size(long fallback) {
  const struct accel_v1* const accel = accel_v1_find();
  return accel != NULL ? accel->batch_size(fallback) : fallback;
}

/* Rank and number of ranks in the job: MPI_COMM_WORLD's, else what the launcher says; -1 without libaccel. */
static inline int accel_rank(void) {
  const struct accel_v1* const accel = accel_v1_find();
  return accel != NULL ? accel->rank() : -1;
}
static inline int accel_size(void) {
  const struct accel_v1* const accel = accel_v1_find();
  return accel != NULL ? accel->size() : -1;
}

/* Marks a part of the program in the record: DEBUG logs, traces and reports show it. Parts may be nested. */
static inline void accel_region_begin(const char* name) {
  const struct accel_v1* const accel = accel_v1_find();
  if (accel != NULL) accel->region_begin(name);
}
static inline void accel_region_end(const char* name) {
  const struct accel_v1* const accel = accel_v1_find();
  if (accel != NULL) accel->region_end(name);
}

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-use-nullptr) */

#endif
