#include "interpose/nccl/real.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "interpose/real.h"
#include "report/log.h"

namespace accel::nccl {

namespace detail {
constinit std::atomic<bool> several{false};
}

namespace {

struct Object {
  std::string path;
  void* handle;
};

/// Every loaded object that has NCCL in it, however it came in. Never shrinks.
struct Objects {
  std::mutex mutex;
  std::vector<Object> all;
  std::set<const void*> wrapped;  ///< where those begin whose functions wrappers have asked for
  unsigned long long loads = 0;   ///< of the loader, when it was filled

  void refresh() {
    unsigned long long now = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* result) {
          *static_cast<unsigned long long*>(result) = object->dlpi_adds;
          return 1;
        },
        &now);
    if (now == loads && !all.empty()) return;
    loads = now;
    std::vector<std::string> paths;
    dl_iterate_phdr(
        [](dl_phdr_info* object, std::size_t, void* result) {
          if (defines(*object, "pncclGetVersion"))
            static_cast<std::vector<std::string>*>(result)->emplace_back(object->dlpi_name);
          return 0;
        },
        &paths);
    all.clear();
    for (const std::string& path : paths) {
      // The executable itself has no name.
      if (void* handle = dlopen(path.empty() ? nullptr : path.c_str(), RTLD_NOLOAD | RTLD_LAZY))
        all.push_back({path, handle});
    }
    detail::several.store(all.size() > 1, std::memory_order_relaxed);
  }
};

Objects& objects() {
  static auto* const instance = new Objects;
  return *instance;
}

}  // namespace

namespace {

/// objects() is locked.
void* find(const char* name, const void* caller) {
  const std::string symbol = std::string("pnccl") + name;
  objects().refresh();
  const auto& all = objects().all;
  if (all.empty()) return nullptr;
  if (all.size() > 1) {
    // What the caller itself would find: first among what it was linked with.
    Dl_info info;
    link_map* map = nullptr;
    if (dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 && map != nullptr) {
      void* own = dlopen(map->l_name[0] != '\0' ? map->l_name : nullptr, RTLD_NOLOAD | RTLD_LAZY);
      void* found = own != nullptr ? real_dlsym(own, symbol.c_str()) : nullptr;
      if (own != nullptr) dlclose(own);
      if (found != nullptr) return found;
    }
  }
  for (const Object& object : all) {
    if (void* found = real_dlsym(object.handle, symbol.c_str())) return found;
  }
  return nullptr;
}

const void* object_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

void* find_real(const char* name, const void* caller) {
  const std::lock_guard lock(objects().mutex);
  void* const found = find(name, caller);
  if (found != nullptr) objects().wrapped.insert(object_of(found));
  return found;
}

bool is_wrapped(const void* address) {
  const std::lock_guard lock(objects().mutex);
  return objects().wrapped.contains(object_of(address));
}

int lacks(const char* name) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log().say(LogLevel::Error,
              std::string("nccl") + name + " was called, but no NCCL in this process has it");
  }
  constexpr int kInvalidUsage = 5;
  return kInvalidUsage;
}

const char* library_path() {
  const std::lock_guard lock(objects().mutex);
  objects().refresh();
  return objects().all.empty() ? "" : objects().all.front().path.c_str();
}

}  // namespace accel::nccl
