/* checkpoint N: MPI_Allreduce again and again, and now and then one rank is late. A rank that finds a SIGUSR1
 * says before which of them that was, as programs do that save their state on it; after N times it is done.
 * checkpoint 0: a thread waits for the signal, as where saving takes more than a handler may do; the ranks
 * agree every 100th time whether all are done. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static void on_signal(int number) {
  (void)number;
  asked = 1;
}

static void* wait_for_it(void* set) {
  int number;
  sigwait(set, &number);
  printf("saved by a thread\n");
  fflush(stdout);
  asked = 1;
  return NULL;
}

int main(int argc, char** argv) {
  int rank;
  const int times = argc > 1 ? atoi(argv[1]) : 1;
  static sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_t thread;
  if (times == 0) pthread_sigmask(SIG_BLOCK, &set, NULL);  // before threads of MPI start
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  alarm(50);
  if (times == 0) {
    pthread_create(&thread, NULL, wait_for_it, &set);
  } else {
    signal(SIGUSR1, on_signal);
  }
  int done = 0, all_done = 0;
  for (int i = 1; !all_done; ++i) {
    double in = rank, out;
    if (i % 1000 == rank) usleep(1000);
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (times == 0) {
      done = asked;
      if (i % 100 == 0) MPI_Allreduce(&done, &all_done, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    } else if (asked) {
      asked = 0;
      printf("saved before %d\n", i);
      fflush(stdout);
      all_done = ++done == times;
    }
  }
  if (times == 0) pthread_join(thread, NULL);
  MPI_Finalize();
  return 0;
}
