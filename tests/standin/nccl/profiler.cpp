#include "tests/standin/nccl/profiler.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

using namespace accel::nccl;

namespace standin {
namespace {

const char* name_of_type(int type) {
  constexpr const char* kNames[] = {"ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
                                    "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                    "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return kNames[type];
}

struct Plugin {
  const ProfilerV5* v5 = nullptr;
  const ProfilerV4* v4 = nullptr;
  const ProfilerV1* v1 = nullptr;
  int mask = 0;

  static Plugin& get() {
    static Plugin plugin;
    return plugin;
  }

 private:
  Plugin() {
    const char* path = std::getenv("NCCL_PROFILER_PLUGIN");
    const char* text = std::getenv("ACCEL_STANDIN_NCCL_PROFILER");
    const int newest = text != nullptr ? std::atoi(text) : 5;
    void* library = path != nullptr && newest > 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) return;
    if (newest >= 5) v5 = static_cast<const ProfilerV5*>(dlsym(library, "ncclProfiler_v5"));
    if (v5 == nullptr && newest >= 4) v4 = static_cast<const ProfilerV4*>(dlsym(library, "ncclProfiler_v4"));
    if (v5 == nullptr && v4 == nullptr)
      v1 = static_cast<const ProfilerV1*>(dlsym(library, "ncclProfiler_v1"));
  }
};

}  // namespace

void Profiled::begin(std::uint64_t number, int size, int rank) {
  Plugin& plugin = Plugin::get();
  rank_ = rank;
  if (plugin.v5 != nullptr) {
    plugin.v5->init(&context_, number, &plugin.mask, nullptr, 1, size, rank, nullptr);
  } else if (plugin.v4 != nullptr) {
    plugin.v4->init(&context_, &plugin.mask, nullptr, number, 1, size, rank, nullptr);
  } else if (plugin.v1 != nullptr) {
    plugin.v1->init(&context_, &plugin.mask);
  }
}

void Profiled::end() {
  Plugin& plugin = Plugin::get();
  if (context_ == nullptr) return;
  if (plugin.v5 != nullptr) plugin.v5->finalize(context_);
  if (plugin.v4 != nullptr) plugin.v4->finalize(context_);
  if (plugin.v1 != nullptr) plugin.v1->finalize(context_);
  context_ = nullptr;
}

void* Profiled::tell(std::uint64_t type, EventDescription& event) {
  const Plugin& plugin = Plugin::get();
  if (context_ == nullptr || (plugin.mask & static_cast<int>(type)) == 0) return nullptr;
  event.rank = rank_;
  void* handle = nullptr;
  if (plugin.v5 != nullptr) {
    event.type_v5 = type;
    plugin.v5->start_event(context_, &handle, &event);
  } else if (plugin.v4 != nullptr) {
    event.type_v5 = ~std::uint64_t{0};  // what a type of 8 bits leaves beside it
    event.type_v4 = static_cast<std::uint8_t>(type);
    plugin.v4->start_event(context_, &handle, &event);
  }
  return handle;
}

void Profiled::stop(void* event) {
  const Plugin& plugin = Plugin::get();
  // NCCL asks nothing of an event that the plugin has given no handle.
  if (event == nullptr) return;
  if (plugin.v5 != nullptr) plugin.v5->stop_event(event);
  if (plugin.v4 != nullptr) plugin.v4->stop_event(event);
}

void* Profiled::begin_kernel(void* stream) {
  EventDescription event{};
  event.kernel_launch_stream = stream;
  return tell(kEventKernelLaunch, event);
}

void Profiled::end_kernel(void* event) { stop(event); }

void Profiled::call(const char* function, std::size_t count, int type, int root, void* stream,
                    bool captured) {
  EventDescription event{};
  event.coll_api = {function, count, name_of_type(type), root, stream, captured};
  stop(tell(kEventCollApi, event));
}

void Profiled::launch(const char* function, std::size_t count, int type, int root) {
  EventDescription event{};
  event.coll = {0, function, nullptr, nullptr, count, root, name_of_type(type)};
  stop(tell(kEventColl, event));
}

void Profiled::message(const char* function, std::size_t count, int type, int peer) {
  EventDescription event{};
  event.p2p = {function, nullptr, name_of_type(type), count, peer};
  stop(tell(kEventP2p, event));
}

}  // namespace standin
