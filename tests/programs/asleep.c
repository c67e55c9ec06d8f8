// asleep HOW: rank 1 stands still in a certain way while the others wait for it in a barrier. Nothing that it
// does may notice that its stack is looked at: an EINTR ends it with status 9.
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static volatile int never;

__attribute__((noinline)) static int stand_still(const char* how) {
  struct timespec long_time = {100, 0};
  if (!strcmp(how, "poll")) return poll(NULL, 0, 100000);
  if (!strcmp(how, "nanosleep")) return nanosleep(&long_time, NULL);
  if (!strcmp(how, "pause")) return pause();
  if (!strcmp(how, "select")) return select(0, NULL, NULL, NULL, NULL);
  if (!strcmp(how, "epoll")) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(0), &event, 1, -1);
  }
  if (!strcmp(how, "futex")) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    return pthread_mutex_lock(&mutex);
  }
  if (!strcmp(how, "read")) {
    int nobody[2];
    char byte;
    return pipe(nobody) == 0 ? (int)read(nobody[0], &byte, 1) : -1;
  }
  if (!strcmp(how, "masked")) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    return poll(NULL, 0, 100000);
  }
  if (!strcmp(how, "vfork")) {
    // The parent sleeps uninterruptibly until the child is through.
    if (vfork() == 0) {
      sleep(8);
      _exit(0);
    }
    return 0;
  }
  while (!never) {}
  return 0;
}

/// With a frame whose size only the run knows, which a frame pointer addresses.
__attribute__((noinline)) static int load_batch(const char* how, int size) {
  volatile char batch[size];
  batch[0] = 1;
  const int result = stand_still(how);
  return result + batch[0];
}

/// Until little is left of the stack.
__attribute__((noinline)) static int recurse(const char* how, int depth) {
  volatile char frame[1024];
  frame[0] = (char)depth;
  const int result = depth > 0 ? recurse(how, depth - 1) : load_batch(how, 100);
  return result + frame[0];
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "poll";
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 1) {
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    const int deep = argc > 2 ? ((int)(limit.rlim_cur >> 10) - 100) * 10 / 11 : 0;
    const int result = deep > 0 ? recurse("spin", deep) : load_batch(how, 1000 + rank);
    if (result < 1 && errno == EINTR) {
      fprintf(stderr, "it was noticed\n");
      _exit(9);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
