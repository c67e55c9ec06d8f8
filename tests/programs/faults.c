/* One small MPI program with one fault, chosen by name; without a name it is correct. Rank 1 is the one that
 * errs. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rank, size;
static double in[1024], out[4096];
static int counts[64], places[64], values[256], received[256];

static void reduce_gradients(int count, MPI_Datatype type, MPI_Op op) {
  MPI_Allreduce(in, out, count, type, op, MPI_COMM_WORLD);
}

static void wait_for_the_others(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void prepare_counts(int each) {
  for (int i = 0; i < size; ++i) counts[i] = each, places[i] = 4 * i;
}

/* For the benchmark of how soon a fault is reported: when this rank came to the faulty call. */
static void stamp(void) {
  const char* prefix = getenv("ACCEL_TEST_STAMP");
  if (prefix == NULL) return;
  char path[512];
  struct timespec now;
  snprintf(path, sizeof path, "%s.%d", prefix, rank);
  FILE* file = fopen(path, "w");
  clock_gettime(CLOCK_REALTIME, &now);
  fprintf(file, "%lld%09ld\n", (long long)now.tv_sec, now.tv_nsec);
  fclose(file);
}

static void train_step(const char* fault) {
  const int errs = rank == 1;
#define IS(name) (strcmp(fault, name) == 0)
  wait_for_the_others();
  if (errs && (IS("exit0") || IS("_exit3") || IS("finalize") || IS("killed") || IS("segv"))) usleep(20000);
  stamp();
  if (IS("count")) {
    reduce_gradients(errs ? 512 : 1024, MPI_DOUBLE, MPI_SUM);
  } else if (IS("op")) {
    reduce_gradients(4, MPI_DOUBLE, errs ? MPI_MAX : MPI_SUM);
  } else if (IS("datatype")) {
    reduce_gradients(4, errs ? MPI_FLOAT : MPI_INT, MPI_SUM);
  } else if (IS("root")) {
    MPI_Bcast(in, 4, MPI_DOUBLE, errs ? 1 : 0, MPI_COMM_WORLD);
  } else if (IS("reduce-root")) {
    MPI_Reduce(in, out, 4, MPI_DOUBLE, MPI_SUM, errs ? 1 : 0, MPI_COMM_WORLD);
  } else if (IS("bcast-count")) {
    MPI_Bcast(in, errs ? 8 : 4, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  } else if (IS("gather-count")) {
    MPI_Gather(values, errs ? 3 : 1, MPI_INT, received, 1, MPI_INT, 0, MPI_COMM_WORLD);
  } else if (IS("kind")) {
    if (errs) {
      wait_for_the_others();
    } else {
      reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
    }
  } else if (IS("order")) {
    if (errs) reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
    wait_for_the_others();
    if (!errs) reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
  } else if (IS("split-vs-barrier")) {
    MPI_Comm half;
    if (errs) {
      wait_for_the_others();
    } else {
      MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    }
  } else if (IS("half-count")) {
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Allreduce(in, out, errs ? 3 : 4, MPI_DOUBLE, MPI_SUM, half);
    wait_for_the_others();
  } else if (IS("gatherv")) {
    prepare_counts(2);
    counts[1] = 3;
    MPI_Gatherv(values, 2, MPI_INT, received, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
  } else if (IS("scatterv")) {
    prepare_counts(2);
    MPI_Scatterv(values, counts, places, MPI_INT, received, errs ? 1 : 2, MPI_INT, 0, MPI_COMM_WORLD);
  } else if (IS("allgatherv")) {
    prepare_counts(2);
    if (errs) counts[2] = 3;
    MPI_Allgatherv(values, counts[rank], MPI_INT, received, counts, places, MPI_INT, MPI_COMM_WORLD);
  } else if (IS("alltoallv")) {
    int receive_counts[64];
    prepare_counts(2);
    memcpy(receive_counts, counts, sizeof counts);
    if (errs) counts[3] = 1;
    MPI_Alltoallv(values, counts, places, MPI_INT, received, receive_counts, places, MPI_INT, MPI_COMM_WORLD);
  } else if (IS("reduce-scatter")) {
    prepare_counts(1);
    if (errs) counts[0] = 2;
    MPI_Reduce_scatter(values, received, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  } else if (IS("finalize")) {
    if (!errs) reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
  } else if (IS("exit0")) {
    if (errs) exit(0);
    reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
  } else if (IS("_exit3")) {
    if (errs) _exit(3);
    reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
  } else if (IS("killed")) {
    if (errs) kill(getpid(), SIGKILL);
    reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
  } else if (IS("segv")) {
    if (errs) raise(SIGSEGV);
    reduce_gradients(4, MPI_DOUBLE, MPI_SUM);
  } else if (IS("abort")) {
    if (errs) MPI_Abort(MPI_COMM_WORLD, 7);
    wait_for_the_others();
  } else if (IS("invalid-root")) {
    MPI_Bcast(in, 4, MPI_DOUBLE, 99, MPI_COMM_WORLD);
  } else if (IS("cycle")) {
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Barrier(errs ? other : MPI_COMM_WORLD);
    MPI_Barrier(errs ? MPI_COMM_WORLD : other);
  } else if (IS("late")) {
    if (errs) pause();
    wait_for_the_others();
  } else if (IS("busy")) {
    for (volatile double work = 0; errs; work = work + 1) {}
    wait_for_the_others();
  } else if (IS("bcast-missing")) {
    if (!errs) MPI_Bcast(in, 4, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  } else if (fault[0] != '\0') {
    fprintf(stderr, "unknown fault %s\n", fault);
    exit(64);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  train_step(argc > 1 ? argv[1] : "");
  printf("rank %d is done\n", rank);
  MPI_Finalize();
  return 0;
}
