// The CUDA driver is reached on many routes; each call is seen on each of them, once. On a stand-in for the
// driver.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "tests/jobs/harness.h"

namespace accel::testing {
namespace {

std::string standin() { return build_directory() + "/standin"; }

/// `variables` as in a shell: NAME=value ...
Outcome run_cuda(const std::string& name, const std::string& variables = "",
                 const std::string& driver = standin()) {
  static const Scratch scratch;
  return run_shell("LD_LIBRARY_PATH=" + driver + ":" + standin() + " ACCEL_RUN_DIR=" + scratch.path() +
                   " ACCEL_LOG_LEVEL=INFO LD_PRELOAD=" + library() + " " + variables + " " +
                   build_directory() + "/programs/cuda/" + name);
}

/// 10 and 5 and 10 and 1 MiB of device memory and 1 MiB managed, two times 1 MiB pinned, one request that
/// fails.
constexpr const char* kAllSeenOnce =
    "GPU 0: 7 allocations, 7 frees, 1 failures; at most 27262976 bytes of device memory, 0 at the end; "
    "besides, 0 bytes "
    "managed and 0 pinned\n";

TEST(Cuda, EveryRouteToTheDriverIsSeenOnce) {
  for (const char* program : {"memory_static", "memory_per_thread", "memory_shared"}) {
    for (const char* route : {"v2", "v1", "dlsym"}) {
      for (const std::string& driver : {standin(), standin() + "/interposable"}) {
        for (const char* addresses : {"", "ACCEL_STANDIN_DISTINCT=1"}) {
          SCOPED_TRACE(std::string(program) + " " + route + " " + driver + " " + addresses);
          const Outcome outcome =
              run_cuda(program, "ACCEL_STANDIN_ROUTE=" + std::string(route) + " " + addresses, driver);
          EXPECT_EQ(outcome.status, 0) << outcome;
          EXPECT_NE(outcome.output.find(kAllSeenOnce), std::string::npos) << outcome;
        }
      }
    }
  }
}

TEST(Cuda, LinkedAndLookedUpByTheProgramItself) {
  for (const std::string& driver : {standin(), standin() + "/interposable"}) {
    const Outcome outcome = run_cuda("driver", "", driver);
    EXPECT_EQ(outcome.status, 0) << outcome;
    EXPECT_NE(outcome.output.find(
                  "GPU 0: 9 allocations, 9 frees, 0 failures; at most 5242880 bytes of device memory, 0 at "
                  "the end"),
              std::string::npos)
        << outcome;
  }
}

TEST(Cuda, NothingComesIntoBeingWhereThereIsNoDriver) {
  const Outcome without = run_shell(build_directory() + "/programs/cuda/probe");
  EXPECT_EQ(without.status, 0) << without;
  const Outcome with = run_cuda("probe", "LD_LIBRARY_PATH=/nowhere");
  EXPECT_NE(with.output.find("cuInit"), 0U);
  // The weak reference is bound to us all the same; what it leads to says that there is no device.
  EXPECT_EQ(with.output.find("dlsym"), std::string::npos) << with;
  EXPECT_LE(with.status, 1) << with;
}

TEST(Cuda, NvidiasOwnRuntimeTakesItsFunctionsFromUs) {
  if (access((build_directory() + "/programs/cuda/real_static").c_str(), X_OK) != 0)
    GTEST_SKIP() << "no CUDA toolkit here";
  for (const char* program : {"real_static", "real_shared"}) {
    SCOPED_TRACE(program);
    // It wants NVIDIA's driver and stops, but not before it has looked up all that it may ever call.
    const std::string driver = standin() + "/interposable";
    const Outcome outcome =
        run_shell("LD_LIBRARY_PATH=" + driver + " ACCEL_LOG_LEVEL=INFO LD_PRELOAD=" + library() +
                  " timeout 20 " + build_directory() + "/programs/cuda/" + program);
    const auto at = outcome.output.find("CUDA driver: reached by cuGetProcAddress; ");
    ASSERT_NE(at, std::string::npos) << outcome;
    int looked_up = 0;
    int observed = 0;
    ASSERT_EQ(std::sscanf(outcome.output.c_str() + at,
                          "CUDA driver: reached by cuGetProcAddress; %d look-ups, %d of them observed",
                          &looked_up, &observed),
              2);
    EXPECT_GT(looked_up, 300) << outcome;
    EXPECT_GT(observed, 50) << outcome;
  }
}

/// cuBLAS, and NCCL with a runtime inside.
TEST(Cuda, NvidiasOwnLibrariesTakeTheirFunctionsFromUs) {
  const std::string environment = "LD_LIBRARY_PATH=" + standin() + "/interposable:/usr/local/cuda/lib64 ";
  const std::string program = " timeout 30 " + build_directory() + "/programs/cuda/toolkit";
  const Outcome without = run_shell(environment + program);
  if (without.status != 0) GTEST_SKIP() << "no cuBLAS or NCCL of the toolkit here";
  const Outcome with = run_shell(environment + "ACCEL_LOG_LEVEL=INFO LD_PRELOAD=" + library() + program);
  EXPECT_EQ(with.status, 0) << with;
  EXPECT_NE(with.output.find(without.output), std::string::npos) << "the same answers: " << with;
  EXPECT_NE(with.output.find("observing NCCL calls: NCCL "), std::string::npos) << with;
  const auto at = with.output.find("CUDA driver: reached by cuGetProcAddress; ");
  ASSERT_NE(at, std::string::npos) << with;
  EXPECT_GT(
      std::atoi(with.output.c_str() + at + std::string("CUDA driver: reached by cuGetProcAddress; ").size()),
      600)
      << with;
  EXPECT_EQ(with.output.find("no call to it was seen"), std::string::npos) << with;
}

TEST(Cuda, OutOfMemoryOnEveryFunctionThatCanReportIt) {
  const std::pair<const char*, const char*> functions[] = {
      {"cuMemAlloc_v2", "tried to allocate 10.00 MiB on GPU 0"},
      {"cuMemAllocPitch_v2", "tried to allocate 1000.00 KiB on GPU 0"},
      {"cuMemAllocManaged", "tried to allocate 1.00 MiB on GPU 0"},
      {"cuStreamCreate", "could not get what cuStreamCreate needs on GPU 0"},
      {"cuMemHostAlloc", "Out of pinned host memory. Process 0 tried to allocate 1.00 MiB."},
  };
  for (const auto& [function, line] : functions) {
    SCOPED_TRACE(function);
    const Outcome outcome = run_cuda("memory_static", "ACCEL_STANDIN_FAIL=" + std::string(function) + ":1:2");
    EXPECT_EQ(outcome.status, 83) << outcome;
    EXPECT_NE(outcome.output.find("accel.OutOfMemoryError: "), std::string::npos) << outcome;
    EXPECT_NE(outcome.output.find(line), std::string::npos) << outcome;
  }
}

/// Users see CUBLAS_STATUS_ALLOC_FAILED.
TEST(Cuda, TheLibraryThatAskedIsNamed) {
  const Scratch scratch;
  const std::string place = scratch.path();
  std::ofstream(place + "/library.c")
      << "int cuMemAlloc_v2(unsigned long long*, unsigned long);\n"
         "int cublasCreate_v2(void) { unsigned long long p; return cuMemAlloc_v2(&p, 1UL << 40); }\n";
  std::ofstream(place + "/main.c")
      << "int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void**, int); int cuCtxSetCurrent(void*);\n"
         "int cublasCreate_v2(void);\n"
         "int main(void) { void* c; cuInit(0); cuDevicePrimaryCtxRetain(&c, 0); cuCtxSetCurrent(c);\n"
         "return cublasCreate_v2() != 0; }\n";
  const Outcome built =
      run_shell("cd " + place + " && gcc -g -shared -fPIC -o libcublas.so.99 library.c -L" + standin() +
                " -lcuda && gcc -g -o main main.c ./libcublas.so.99 -L" + standin() + " -lcuda");
  ASSERT_EQ(built.status, 0) << built;
  const Outcome outcome = run_shell("cd " + place + " && LD_LIBRARY_PATH=.:" + standin() +
                                    " ACCEL_RUN_DIR=" + place + " LD_PRELOAD=" + library() + " ./main");
  EXPECT_EQ(outcome.status, 83) << outcome;
  EXPECT_NE(outcome.output.find("  it was cuBLAS that asked for the memory\n"), std::string::npos) << outcome;
}

TEST(Cuda, WhatAPoolKeepsIsSaid) {
  const Outcome outcome = run_cuda("pool");
  EXPECT_EQ(outcome.status, 83) << outcome;
  EXPECT_NE(outcome.output.find(
                "The GPU has 1.00 GiB, of which 424.00 MiB are free; this process holds 0 bytes, others "
                "and the driver 0 bytes."),
            std::string::npos)
      << outcome;
  EXPECT_NE(outcome.output.find("the memory pool of cudaMallocAsync keeps 600 MiB that nobody uses"),
            std::string::npos)
      << outcome;
}

}  // namespace
}  // namespace accel::testing
