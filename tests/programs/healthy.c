/* Correct programs that look odd, chosen by name. Each prints "ok" on rank 0 and exits with 0. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, size;

/* Same type signature, differently grouped: legal. */
static void derived_types(void) {
  MPI_Datatype ten, pairs, mixed;
  int data[64] = {0};
  MPI_Type_contiguous(10, MPI_INT, &ten);
  MPI_Type_commit(&ten);
  MPI_Type_vector(5, 2, 3, MPI_INT, &pairs);
  MPI_Type_commit(&pairs);
  for (int i = 0; i < 3000; ++i) {
    if (rank == 0) {
      MPI_Bcast(data, 1, ten, 0, MPI_COMM_WORLD);
    } else if (rank == 1) {
      MPI_Bcast(data, 1, pairs, 0, MPI_COMM_WORLD);
    } else {
      MPI_Bcast(data, 10, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Datatype fleeting;
    MPI_Type_contiguous(1 + i % 7, MPI_DOUBLE, &fleeting);
    MPI_Type_commit(&fleeting);
    double wide[8] = {0};
    MPI_Bcast(wide, 1, fleeting, 0, MPI_COMM_WORLD);
    MPI_Type_free(&fleeting);
  }
  int lengths[2] = {1, 2};
  MPI_Aint places[2] = {0, 8};
  MPI_Datatype parts[2] = {MPI_DOUBLE, MPI_INT};
  struct {
    double d;
    int i[2];
  } record = {0};
  MPI_Type_create_struct(2, lengths, places, parts, &mixed);
  MPI_Type_commit(&mixed);
  MPI_Bcast(&record, 1, mixed, 0, MPI_COMM_WORLD);
  MPI_Type_free(&mixed);
  MPI_Type_free(&pairs);
  MPI_Type_free(&ten);
}

static void* use_own_communicator(void* communicator) {
  double in = 1, out;
  for (int i = 0; i < 20; ++i) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, *(MPI_Comm*)communicator);
  return NULL;
}

static void many_threads(void) {
  enum { kThreads = 64 };
  pthread_t threads[kThreads];
  MPI_Comm communicators[kThreads];
  for (int i = 0; i < kThreads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &communicators[i]);
  for (int i = 0; i < kThreads; ++i)
    pthread_create(&threads[i], NULL, use_own_communicator, &communicators[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kThreads; ++i) MPI_Comm_free(&communicators[i]);
}

static void fork_and_exec(void) {
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (i == 0) _exit(0);
      if (i == 1) exit(0);
      execlp("true", "true", NULL);
      _exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) abort();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (system("true") != 0) abort();
}

/* What an application's callback does inside MPI_Finalize still counts (HDF5 and PETSc work that way). */
static int communicate_late(MPI_Comm communicator, int key, void* value, void* extra) {
  (void)communicator, (void)key, (void)value, (void)extra;
  double in = 1, out;
  MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return MPI_SUCCESS;
}

static void finalize_callback(void) {
  int key;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, communicate_late, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

static void error_handlers(void) {
  MPI_Errhandler handler;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  if (handler != MPI_ERRORS_ARE_FATAL) {
    fprintf(stderr, "the default error handler is not the default\n");
    exit(1);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  double data;
  if (MPI_Bcast(&data, 1, MPI_DOUBLE, 99, MPI_COMM_WORLD) == MPI_SUCCESS) exit(1);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
}

static void many_communicators(void) {
  for (int i = 0; i < 300; ++i) {
    MPI_Comm copy, half;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_split(copy, rank % 2, rank, &half);
    MPI_Barrier(half);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
  }
  MPI_Comm kept[1100];
  for (int i = 0; i < 1100; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &kept[i]);
  for (int i = 0; i < 1100; ++i) MPI_Barrier(kept[i]);
  for (int i = 0; i < 1100; ++i) MPI_Comm_free(&kept[i]);
}

static void truncate_own_record(void) {
  char path[512];
  snprintf(path, sizeof path, "%s/%d.record", getenv("TEST_RUN_DIRECTORY"), (int)getpid());
  if (rank == 1 && truncate(path, 5000) != 0) exit(1);
  MPI_Barrier(MPI_COMM_WORLD);
  double in = 1, out;
  for (int i = 0; i < 1000; ++i) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void close_all_descriptors(void) {
  for (int fd = 3; fd < 64; ++fd) {
    char link[64], target[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, target, sizeof target - 1) > 0 && strstr(target, "accel-") != NULL) close(fd);
  }
  double in = 1, out;
  for (int i = 0; i < 1000; ++i) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
#define IS(name) (strcmp(what, name) == 0)
  if (IS("no-mpi")) {
    puts("ok");
    return 0;
  }
  int provided;
  MPI_Init_thread(&argc, &argv, IS("threads") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (IS("derived-types")) derived_types();
  if (IS("threads") && provided == MPI_THREAD_MULTIPLE) many_threads();
  if (IS("fork-exec")) fork_and_exec();
  if (IS("finalize-callback")) finalize_callback();
  if (IS("error-handlers")) error_handlers();
  if (IS("many-communicators")) many_communicators();
  if (IS("truncate-own-record")) truncate_own_record();
  if (IS("close-descriptors")) close_all_descriptors();
  if (IS("intercomm")) {
    MPI_Comm half, inter, merged;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
    double data = rank;
    MPI_Bcast(&data, 1, MPI_DOUBLE, rank % 2 == 1 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
    MPI_Intercomm_merge(inter, rank % 2, &merged);
    MPI_Barrier(merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
  }
  if (IS("topologies")) {
    MPI_Comm grid, row, group_comm;
    int dims[2] = {2, size / 2}, periods[2] = {0, 0}, keep[2] = {0, 1};
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Cart_sub(grid, keep, &row);
    MPI_Barrier(row);
    MPI_Group world, evens;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int members[2] = {0, 2};
    MPI_Group_incl(world, 2, members, &evens);
    for (int i = 0; i < 3; ++i) {
      if (rank == 0 || rank == 2) {
        MPI_Comm_create_group(MPI_COMM_WORLD, evens, 7, &group_comm);
        MPI_Barrier(group_comm);
        MPI_Comm_free(&group_comm);
      }
    }
    MPI_Comm copy;
    MPI_Request request;
    MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    MPI_Comm_create(MPI_COMM_WORLD, evens, &group_comm);
    if (group_comm != MPI_COMM_NULL) MPI_Barrier(group_comm);
  }
  if (rank == 0) puts("ok");
  fflush(stdout);
  if (IS("never-finalize")) {
    MPI_Barrier(MPI_COMM_WORLD);
    exit(0);
  }
  if (IS("exec-again")) {
    MPI_Finalize();
    execl(argv[0], argv[0], "no-mpi", NULL);
  }
  MPI_Finalize();
  return 0;
}
