#include "interpose/cuda/ledger.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "interpose/cuda/real.h"

namespace accel::cuda {
namespace {

/// So many launches after a failure mean that the program does without what it asked for.
constexpr std::uint32_t kWentOn = 16;

void set_state(MemoryEpisode& episode, EpisodeState state) {
  __atomic_store(&episode.state, &state, __ATOMIC_RELEASE);
}

/// Sizes by address, in parts so that threads rarely meet.
struct Shard {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Block> blocks;
};
constexpr std::size_t kShards = 16;
std::array<Shard, kShards>& shards() {
  static auto* const all = new std::array<Shard, kShards>;
  return *all;
}
Shard& shard_of(std::uint64_t address) { return shards()[(address >> 9) % kShards]; }

struct Physical {
  Block block;
  int references = 1;
  int mappings = 0;
};
struct VirtualMemory {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, Physical> physical;                       // by handle
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> mappings;  // by address: bytes, handle
};
VirtualMemory& virtual_memory() {
  static auto* const all = new VirtualMemory;
  return *all;
}

}  // namespace

Ledger* Ledger::get() {
  static Ledger* const ledger = []() -> Ledger* {
    Process& process = Process::self();
    if (!process.start(kUsesCuda)) return nullptr;
    process.introduce(0, 1, kUsesCuda);
    auto* made = new Ledger;
    made->recorder_ = process.recorder();
    made->sites_ = &process.sites();
    return made;
  }();
  return ledger != nullptr && Process::self().recorder() != nullptr ? ledger : nullptr;
}

int Ledger::current_device() {
  static constinit Real real("cuCtxGetDevice");
  auto* const ask = real.get<int(int*)>();
  int device = -1;
  return ask != nullptr && ask(&device) == driver::kSuccess ? device : -1;
}

/// nullptr: no device, or one too many.
DeviceMemory* Ledger::memory_of(int device) const {
  const bool known = device >= 0 && device < static_cast<int>(kMaxDevices);
  return known ? &recorder_->file().memory[device] : nullptr;
}

/// The first device with an allocation is the process's GPU; nearly all have one alone.
void Ledger::name_gpu(int device) {
  RecorderHeader& header = recorder_->header();
  static constinit Real real("cuDeviceGetName");
  auto* const ask = real.get<int(char*, int, int)>();
  char name[sizeof header.gpu] = {};
  if (ask == nullptr || header.gpu[0] != '\0' || ask(name, sizeof name - 1, device) != driver::kSuccess)
    return;
  std::memcpy(header.gpu, name, sizeof name);
}

void Ledger::count(const Block& block, int sign) {
  DeviceMemory* const found = memory_of(block.device);
  if (found == nullptr) return;
  DeviceMemory& memory = *found;
  const std::int64_t bytes = sign * static_cast<std::int64_t>(block.bytes);
  __atomic_fetch_add(&memory.current[static_cast<std::size_t>(block.kind)], bytes, __ATOMIC_RELAXED);
  const std::uint64_t before =
      __atomic_fetch_add(sign > 0 ? &memory.allocations : &memory.frees, 1, __ATOMIC_RELAXED);
  if (sign > 0 && before == 0) [[unlikely]]
    name_gpu(block.device);
  if (!is_device_memory(block.kind)) return;
  const std::int64_t now = __atomic_add_fetch(&memory.total, bytes, __ATOMIC_RELAXED);
  std::int64_t peak = __atomic_load_n(&memory.peak, __ATOMIC_RELAXED);
  while (now > peak &&
         !__atomic_compare_exchange_n(&memory.peak, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
}

void Ledger::add(std::uint64_t address, const Block& block) {
  put_back(address, block);
  count(block, 1);
  if (driver_state.open != nullptr) [[unlikely]]
    settle(block.device, block.bytes);
}

Block Ledger::take(std::uint64_t address) {
  Shard& shard = shard_of(address);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.blocks.find(address);
  if (found == shard.blocks.end()) return {};
  const Block block = found->second;
  shard.blocks.erase(found);
  return block;
}

void Ledger::put_back(std::uint64_t address, const Block& block) {
  if (block.bytes == 0) return;
  Shard& shard = shard_of(address);
  const std::lock_guard lock(shard.mutex);
  shard.blocks[address] = block;
}

void Ledger::freed(const Block& block) {
  if (block.bytes != 0) count(block, -1);
}

void Ledger::reset(int device) {
  for (Shard& shard : shards()) {
    const std::lock_guard lock(shard.mutex);
    for (auto one = shard.blocks.begin(); one != shard.blocks.end();) {
      const bool gone = one->second.device == device;
      if (gone) count(one->second, -1);
      one = gone ? shard.blocks.erase(one) : std::next(one);
    }
  }
}

void Ledger::created(std::uint64_t handle, std::uint64_t bytes, int device) {
  const Block block{bytes, device, MemoryKind::Virtual};
  {
    const std::lock_guard lock(virtual_memory().mutex);
    virtual_memory().physical[handle] = {block};
  }
  count(block, 1);
  if (driver_state.open != nullptr) settle(device, bytes);
}

void Ledger::retained(std::uint64_t handle) {
  const std::lock_guard lock(virtual_memory().mutex);
  const auto found = virtual_memory().physical.find(handle);
  if (found != virtual_memory().physical.end()) ++found->second.references;
}

void Ledger::released(std::uint64_t handle) {
  const std::lock_guard lock(virtual_memory().mutex);
  auto& all = virtual_memory().physical;
  const auto found = all.find(handle);
  if (found == all.end()) return;
  --found->second.references;
  drop_if_unused(handle);
}

/// The memory is gone with the last reference and the last mapping. virtual_memory() is locked.
void Ledger::drop_if_unused(std::uint64_t handle) {
  auto& all = virtual_memory().physical;
  const auto found = all.find(handle);
  if (found == all.end() || found->second.references > 0 || found->second.mappings > 0) return;
  count(found->second.block, -1);
  all.erase(found);
}

void Ledger::mapped(std::uint64_t address, std::uint64_t bytes, std::uint64_t handle) {
  const std::lock_guard lock(virtual_memory().mutex);
  const auto found = virtual_memory().physical.find(handle);
  if (found == virtual_memory().physical.end()) return;
  ++found->second.mappings;
  virtual_memory().mappings[address] = {bytes, handle};
}

void Ledger::unmapped(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard lock(virtual_memory().mutex);
  auto& memory = virtual_memory();
  for (auto one = memory.mappings.lower_bound(address);
       one != memory.mappings.end() && one->first < address + bytes; one = memory.mappings.erase(one)) {
    const auto found = memory.physical.find(one->second.second);
    if (found == memory.physical.end()) continue;
    --found->second.mappings;
    drop_if_unused(found->first);
  }
}

namespace {

/// What the device's current memory pool keeps without using it.
std::int64_t idle_in_pool(int device) {
  static constinit Real find("cuDeviceGetMemPool");
  static constinit Real attribute("cuMemPoolGetAttribute");
  auto* const find_pool = find.get<int(void**, int)>();
  auto* const ask = attribute.get<int(void*, int, std::uint64_t*)>();
  void* pool = nullptr;
  if (find_pool == nullptr || ask == nullptr || find_pool(&pool, device) != driver::kSuccess) return 0;
  constexpr int kReserved = 5;  // CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
  constexpr int kUsed = 7;      // CU_MEMPOOL_ATTR_USED_MEM_CURRENT
  std::uint64_t reserved = 0;
  std::uint64_t used = 0;
  if (ask(pool, kReserved, &reserved) != driver::kSuccess || ask(pool, kUsed, &used) != driver::kSuccess)
    return 0;
  return reserved > used ? static_cast<std::int64_t>(reserved - used) : 0;
}

}  // namespace

void Ledger::failed(const Origin& origin, MemoryKind kind, std::uint64_t bytes, int device) {
  RecorderFile& file = recorder_->file();
  DeviceMemory* const memory = memory_of(device);
  if (memory != nullptr) __atomic_fetch_add(&memory->failures, 1, __ATOMIC_RELAXED);
  std::size_t free = 0;
  std::size_t total = 0;
  static constinit Real real("cuMemGetInfo_v2");
  if (auto* ask = real.get<int(std::size_t*, std::size_t*)>()) ask(&free, &total);

  MemoryEpisode* episode = driver_state.open;
  const bool again = episode != nullptr && episode->device == device;
  if (!again) {
    const std::uint32_t number = __atomic_fetch_add(&file.header.episodes, 1, __ATOMIC_RELAXED);
    episode = &file.episodes[number % kMaxEpisodes];
  }
  const std::uint32_t stamp = episode->stamp | 1;
  __atomic_store_n(&episode->stamp, stamp, __ATOMIC_RELEASE);
  std::atomic_thread_fence(std::memory_order_release);
  if (!again) {
    episode->attempts = 0;
    episode->started = ticks_now();
    episode->tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
    episode->device = device;
  }
  ++episode->attempts;
  episode->state = EpisodeState::Open;
  episode->inside = static_cast<std::uint8_t>(library_at(origin.caller));
  episode->impossible = total != 0 && bytes > total;
  episode->kind = static_cast<std::uint8_t>(kind);
  episode->function = origin.function;
  episode->site = sites_->find(origin.caller, origin.frame);
  episode->bytes = bytes;
  episode->free = free;
  episode->total = total;
  episode->own = memory != nullptr ? memory->total : 0;
  episode->idle = memory != nullptr ? idle_in_pool(device) : 0;
  __atomic_store_n(&episode->stamp, stamp + 1, __ATOMIC_RELEASE);
  driver_state.open = episode;
  driver_state.went_on = 0;
}

/// An allocation has succeeded.
void Ledger::settle(int device, std::uint64_t bytes) {
  MemoryEpisode* episode = driver_state.open;
  if (episode->device != device || bytes < episode->bytes) return;
  set_state(*episode, EpisodeState::Recovered);
  driver_state.open = nullptr;
}

void Ledger::asked_for_free_memory() {
  if (driver_state.open != nullptr) set_state(*driver_state.open, EpisodeState::GaveUp);
}

void Ledger::went_on() {
  if (++driver_state.went_on < kWentOn) return;
  set_state(*driver_state.open, EpisodeState::Recovered);
  driver_state.open = nullptr;
}

void Ledger::broke(const Origin& origin, int error) {
  BrokenContext& broken = recorder_->header().broken;
  if (broken.error != 0) return;  // what follows are echoes
  broken.function = origin.function;
  broken.site = sites_->find(origin.caller, origin.frame);
  broken.at = ticks_now();
  __atomic_store_n(&broken.error, error, __ATOMIC_RELEASE);
}

}  // namespace accel::cuda
