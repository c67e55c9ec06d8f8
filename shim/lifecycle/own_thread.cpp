#include "lifecycle/own_thread.h"

#include <pthread.h>
#include <signal.h>

namespace accel {

bool start_own_thread(void* (*run)(void*), void* argument) {
  sigset_t ours;
  sigset_t before;
  sigfillset(&ours);
  // A blocked fault kills without asking the handler, which knows a record file that somebody truncated.
  sigdelset(&ours, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &ours, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, nullptr, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) pthread_detach(thread);
  return error == 0;
}

}  // namespace accel
