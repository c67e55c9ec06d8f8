// What the NCCL programs of the tests share: who we are, the id that all ranks need, errors that end the
// rank.
#pragma once
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

inline int number(const char* variable, int otherwise = 0) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// Two threads that call exit at the same time are undefined behaviour.
[[noreturn]] inline void give_up() {
  static std::mutex first;
  first.lock();
  std::exit(1);
}

struct Rank {
  int rank = number("RANK");
  int size = number("WORLD_SIZE", 1);
};

#define CUDA(call)                                                                                 \
  do {                                                                                             \
    const cudaError_t error = (call);                                                              \
    if (error != cudaSuccess) {                                                                    \
      std::fprintf(stderr, "rank %d: %s: %s\n", number("RANK"), #call, cudaGetErrorString(error)); \
      give_up();                                                                                   \
    }                                                                                              \
  } while (0)
#define NCCL(call)                                                                                    \
  do {                                                                                                \
    const ncclResult_t error = (call);                                                                \
    if (error != ncclSuccess && error != ncclInProgress) {                                            \
      std::fprintf(stderr, "rank %d: %s: %s: %s\n", number("RANK"), #call, ncclGetErrorString(error), \
                   ncclGetLastError(nullptr));                                                        \
      give_up();                                                                                      \
    }                                                                                                 \
  } while (0)

/// Rank 0's id, through a file in the directory that the launcher of the tests names.
inline ncclUniqueId share_id(const Rank& me, const char* name = "id") {
  ncclUniqueId id;
  const std::string path = std::string(std::getenv("RENDEZVOUS")) + "/" + name;
  if (me.rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    std::ofstream(path + ".new").write(id.internal, sizeof id.internal);
    std::rename((path + ".new").c_str(), path.c_str());
    return id;
  }
  for (;;) {
    std::ifstream file(path);
    if (file.read(id.internal, sizeof id.internal)) return id;
    usleep(1000);
  }
}

/// Says that this rank has come so far.
inline void arrive(const Rank& me) {
  std::ofstream(std::string(std::getenv("RENDEZVOUS")) + "/arrived." + std::to_string(me.rank))
      << getpid() << '\n';
}
/// Waits until all others have.
inline void await_others(const Rank& me) {
  for (int rank = 0; rank < me.size; ++rank) {
    const std::string path = std::string(std::getenv("RENDEZVOUS")) + "/arrived." + std::to_string(rank);
    while (rank != me.rank && access(path.c_str(), F_OK) != 0) usleep(1000);
  }
}

/// Waits until all others have arrived and then fallen asleep, in a call that waits for us.
inline void await_others_asleep(const Rank& me) {
  await_others(me);
  for (int rank = 0; rank < me.size; ++rank) {
    if (rank == me.rank) continue;
    std::string pid;
    std::ifstream file(std::string(std::getenv("RENDEZVOUS")) + "/arrived." + std::to_string(rank));
    while (!(file >> pid)) file.clear(), file.seekg(0);
    for (int asleep = 0; asleep < 20; usleep(1000)) {
      std::string text;
      std::getline(std::ifstream("/proc/" + pid + "/stat"), text);
      asleep = text.find(") S ") != std::string::npos ? asleep + 1 : 0;
    }
  }
}

inline ncclComm_t connect(const Rank& me, const char* name = "id") {
  ncclComm_t comm;
  const ncclUniqueId id = share_id(me, name);
  NCCL(ncclCommInitRank(&comm, me.size, id, me.rank));
  return comm;
}

inline float* device_floats(std::size_t count, float value = 1) {
  float* data;
  CUDA(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)));
  const std::vector<float> host(count, value);
  CUDA(cudaMemcpy(data, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
  return data;
}
