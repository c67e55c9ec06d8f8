// Nanoseconds a call: ncclAllReduce, cuMemAlloc with cuMemFree (halved), cuStreamSynchronize, dlsym of a name
// that nobody intercepts. Best of several rounds.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>

struct UniqueId {
  char bytes[128];
};
extern "C" {
int ncclGetUniqueId(UniqueId*);
int ncclCommInitRank(void**, int, UniqueId, int);
int ncclAllReduce(const void*, void*, std::size_t, int, int, void*, void*);
int cuMemAlloc_v2(std::uint64_t*, std::size_t);
int cuMemFree_v2(std::uint64_t);
int cuStreamSynchronize(void*);
}

template <class Call>
double nanoseconds(Call call) {
  constexpr int kCalls = 200000;
  double best = 1e9;
  for (int round = 0; round < 9; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count() / kCalls);
  }
  return best;
}

int main() {
  UniqueId id;
  void* comm;
  ncclGetUniqueId(&id);
  ncclCommInitRank(&comm, 1, id, 0);
  const double reduce = nanoseconds([&] { ncclAllReduce(&id, &id, 1024, 7, 0, comm, nullptr); });
  const double memory = nanoseconds([] {
    std::uint64_t where;
    cuMemAlloc_v2(&where, 1024);
    cuMemFree_v2(where);
  });
  const double synchronize = nanoseconds([] { cuStreamSynchronize(nullptr); });
  const double lookup = nanoseconds([] { dlsym(RTLD_DEFAULT, "printf"); });
  std::printf("%.1f %.1f %.1f %.1f\n", reduce, memory / 2, synchronize, lookup);
  return 0;
}
