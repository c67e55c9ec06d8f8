#include "record/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <string>

#include "record/fixed_text.h"
#include "record/process_stat.h"

namespace accel {
namespace {

pthread_key_t thread_key;

void give_back_thread(void* slot) {
  auto* thread = static_cast<ThreadRecord*>(slot);
  __atomic_store_n(&thread->current, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&thread->tid, 0, __ATOMIC_RELEASE);
}

std::string program_name() {
  char path[512];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return "?";
  path[length] = '\0';
  return path;
}

}  // namespace

Result<Recorder*> Recorder::create(const RunDirectory& run, std::size_t collectives) {
  using Failure = Result<Recorder*>;
  // A file of that name is left over from before an exec, or from a process that had our pid: its turn is
  // over.
  const std::string name = record_name(getpid());
  unlinkat(run.fd(), name.c_str(), 0);
  const FileDescriptor file(
      openat(run.fd(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file)
    return Failure::failure(fmt::format("cannot create {}/{}: {}", run.path(), name, std::strerror(errno)));
  const std::size_t capacity = std::bit_ceil(std::clamp<std::size_t>(collectives, 64, kMostCollectives));
  const std::size_t bytes = recorder_bytes(capacity);
  const int error = reserve(file.get(), bytes);
  if (error != 0) {
    unlinkat(run.fd(), name.c_str(), 0);
    return Failure::failure(
        fmt::format("no room for {} KiB in {}: {}", bytes / 1024, run.path(), std::strerror(error)));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    unlinkat(run.fd(), name.c_str(), 0);
    return Failure::failure(fmt::format("cannot map {}/{}: {}", run.path(), name, std::strerror(errno)));
  }
  static const int key_error = pthread_key_create(&thread_key, give_back_thread);
  if (key_error != 0) return Failure::failure("no thread key left");

  auto* recorder = new Recorder;
  recorder->file_ = static_cast<RecorderFile*>(memory);
  recorder->last_collective_ = capacity - 1;
  RecorderHeader& header = recorder->header();
  const auto stat = process_stat(getpid());
  header.version = kLayoutVersion;
  header.bytes = sizeof(RecorderFile);
  header.collectives = capacity;
  header.pid = getpid();
  header.uid = geteuid();
  header.start_time = stat ? stat->start_time : 0;
  header.world_rank = -1;
  header.begin = ClockPair::now();
  header.latest = header.begin;
  header.begin_realtime_ns = nanoseconds(CLOCK_REALTIME);
  header.phase = Phase::Initializing;
  header.exit_status = -1;
  header.thread_level = -1;
  set_text(header.host, host_name());
  set_text(header.program, program_name());
  recorder->refresh_maps();
  __atomic_store_n(&header.magic, kRecorderMagic, __ATOMIC_RELEASE);
  return recorder;
}

ThreadRecord* Recorder::claim_thread() {
  const auto tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
  for (std::size_t i = 0; i < kMaxThreads; ++i) {
    ThreadRecord& thread = file_->threads[i];
    std::uint32_t free = 0;
    if (!__atomic_compare_exchange_n(&thread.tid, &free, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    store(thread.current, std::uint64_t{0});
    std::uint32_t used = load(header().threads);
    while (used < i + 1 &&
           !__atomic_compare_exchange_n(&header().threads, &used, static_cast<std::uint32_t>(i + 1), false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
    pthread_setspecific(thread_key, &thread);
    return &thread;
  }
  return nullptr;
}

int Recorder::add_communicator(const CommunicatorRecord& communicator) {
  // What happened on one that is gone is worth a look for a while: new places first, as long as they are few.
  constexpr std::uint32_t kFew = 64;
  const std::uint32_t begin = load(header().communicators) < kFew ? load(header().communicators) : 0;
  for (std::uint32_t slot = begin; slot < kMaxCommunicators; ++slot) {
    CommunicatorRecord& target = file_->communicators[slot];
    std::uint32_t stamp = __atomic_load_n(&target.stamp, __ATOMIC_ACQUIRE);
    const bool free = load(target.key) == 0 || (load(target.flags) & kCommunicatorFreed) != 0;
    if (!free || (stamp & 1) != 0 ||
        !__atomic_compare_exchange_n(&target.stamp, &stamp, stamp | 1, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED)) {
      continue;
    }
    store(target.flags, communicator.flags);
    store(target.rank, communicator.rank);
    store(target.size, communicator.size);
    store(target.sequence, std::uint64_t{0});
    store(target.chain, communicator.key);
    store(target.balance, std::uint64_t{0});
    store(target.position, std::uint64_t{0});
    store(target.types, std::uint64_t{0});
    store(target.born, load(header().positions[static_cast<std::size_t>(Ring::Collectives)]));
    store(target.key, communicator.key);
    __atomic_store_n(&target.stamp, (stamp | 1) + 1, __ATOMIC_RELEASE);
    std::uint32_t used = load(header().communicators);
    while (used < slot + 1 && !__atomic_compare_exchange_n(&header().communicators, &used, slot + 1, false,
                                                           __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {}
    return static_cast<int>(slot);
  }
  return -1;
}

void Recorder::take_back(const Ticket& ticket) {
  CommunicatorRecord& communicator = file_->communicators[ticket.record->communicator % kMaxCommunicators];
  CallRecord& record = *ticket.record;
  const bool latest =
      load(communicator.sequence) == record.sequence && load(communicator.chain) == record.chain;
  if (latest) {
    const std::uint32_t stamp = load(communicator.stamp);
    store(communicator.stamp, stamp | 1);
    std::atomic_thread_fence(std::memory_order_release);
    store(communicator.sequence, record.sequence - 1);
    store(communicator.chain, ticket.chain_before);
    store(communicator.balance, ticket.balance_before);
    store(communicator.position, ticket.position_before);
    store(communicator.types, ticket.types_before);
    __atomic_store_n(&communicator.stamp, (stamp | 1) + 1, __ATOMIC_RELEASE);
  }
  record.function = Function::None;
  store(record.communicator, kNoCommunicator);
  store(record.sequence, std::uint64_t{0});
  end(ticket);
}

PairRecord* Recorder::add_pair(std::uint64_t communicator, std::int32_t peer, std::uint32_t direction) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::uint32_t used = load(header().pairs);
  if (used == kMaxPairs) return nullptr;
  file_->pairs[used] = {communicator, peer, direction, 0, {communicator}};
  __atomic_store_n(&header().pairs, used + 1, __ATOMIC_RELEASE);
  return &file_->pairs[used];
}

void Recorder::free_communicator(int slot) { flag_communicator(slot, kCommunicatorFreed); }

void Recorder::flag_communicator(int slot, std::uint32_t flag) {
  __atomic_fetch_or(&file_->communicators[static_cast<std::size_t>(slot) % kMaxCommunicators].flags, flag,
                    __ATOMIC_RELEASE);
}

DatatypeId Recorder::add_datatype(const TypeSignature& signature, const char* name) {
  static std::mutex mutex;
  static std::size_t used = 0;
  const std::lock_guard lock(mutex);
  for (std::size_t slot = 0; slot < used; ++slot) {
    const DatatypeRecord& record = file_->datatypes[slot];
    if (TypeSignature{record.hash, record.length, record.only} == signature)
      return static_cast<DatatypeId>(kDerived + slot);
  }
  if (used == kMaxDatatypes) return kUnknownDatatype;
  DatatypeRecord& record = file_->datatypes[used];
  record.hash = signature.hash;
  record.length = signature.length;
  record.only = signature.only;
  set_text(record.name, name);
  return static_cast<DatatypeId>(kDerived + used++);
}

Recorder::Vectors Recorder::reserve_vectors(int size) {
  constexpr std::size_t kHeadWords = sizeof(VectorHead) / 8;
  constexpr std::size_t kBlockWords = sizeof(PeerBlock) / 8;
  const std::size_t words = kHeadWords + 2 * static_cast<std::size_t>(size) * kBlockWords;
  if (size <= 0 || words > kVectorWords / 4) return {};
  std::uint64_t& written = header().vector_words;
  std::uint64_t position = load(written);
  std::uint64_t place;
  do {  // never across the end of the ring
    const std::uint64_t left = kVectorWords - position % kVectorWords;
    place = left < words ? position + left : position;
  } while (!__atomic_compare_exchange_n(&written, &position, place + words, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  std::uint64_t* memory = file_->vectors + place % kVectorWords;
  std::memset(memory, 0, words * 8);
  Vectors vectors;
  vectors.head = reinterpret_cast<VectorHead*>(memory);
  vectors.head->position = place;
  vectors.head->size = static_cast<std::uint32_t>(size);
  vectors.sends = reinterpret_cast<PeerBlock*>(memory + kHeadWords);
  vectors.expects = vectors.sends + size;
  return vectors;
}

void Recorder::note(NoteKind kind, std::uint8_t level, std::uint8_t flags, std::uint64_t number,
                    const char* text) {
  static const thread_local auto kTid = static_cast<std::uint32_t>(syscall(SYS_gettid));
  std::size_t left = std::strlen(text);
  constexpr std::size_t kMost = 16;  // notes a text
  left = std::min(left, kMost * kNoteText);
  const std::uint64_t count = std::max<std::size_t>((left + kNoteText - 1) / kNoteText, 1);
  std::uint64_t position =
      __atomic_fetch_add(&header().positions[static_cast<std::size_t>(Ring::Notes)], count, __ATOMIC_RELAXED);
  for (std::uint64_t i = 0; i < count; ++i, ++position) {
    Note& note = file_->notes[position % kNotes];
    const std::uint32_t generation = whole_stamp(position, kNotes);
    store(note.stamp, generation | 1);
    std::atomic_thread_fence(std::memory_order_release);
    note.kind = i == 0 ? kind : NoteKind::Continued;
    note.level = level;
    note.flags = flags;
    note.more = i + 1 < count ? 1 : 0;
    note.at = ticks_now();
    note.number = number;
    note.tid = kTid;
    const std::size_t bytes = std::min(left, kNoteText);
    std::memcpy(note.text, text, bytes);
    if (bytes < kNoteText) note.text[bytes] = '\0';
    text += bytes;
    left -= bytes;
    __atomic_store_n(&note.stamp, generation, __ATOMIC_RELEASE);
  }
}

void Recorder::sample_memory(std::uint64_t now) {
  constexpr std::uint64_t kFirstInterval = 100'000'000;  // some hundredths of a second
  std::int64_t bytes = 0;
  for (const DeviceMemory& memory : file_->memory) bytes += load(memory.total);
  MemoryHistory& history = file_->memory_history;
  MemorySample* const samples = history.samples;
  const std::uint32_t count = history.count;
  if (count == 0 ? bytes == 0 : now - samples[count - 1].at < history.interval) return;
  __atomic_store_n(&history.stamp, history.stamp | 1, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
  if (count == 0) history.interval = kFirstInterval;
  if (count >= 2 && samples[count - 1].bytes == bytes && samples[count - 2].bytes == bytes) {
    samples[count - 1].at = now;
  } else if (count < kMemorySamples) {
    samples[count] = {now, bytes};
    history.count = count + 1;
  } else {
    for (std::size_t i = 0; i < kMemorySamples / 2; ++i) samples[i] = samples[2 * i + 1];
    samples[kMemorySamples / 2] = {now, bytes};
    history.count = kMemorySamples / 2 + 1;
    history.interval = (now - samples[0].at) / (kMemorySamples / 2);
  }
  __atomic_store_n(&history.stamp, (history.stamp | 1) + 1, __ATOMIC_RELEASE);
}

void Recorder::refresh_maps() {
  FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return;
  __atomic_fetch_add(&header().maps_stamp, 1, __ATOMIC_ACQ_REL);
  std::size_t used = 0;
  char line[1024];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    const std::size_t length = std::strlen(line);
    if (std::strchr(line, '/') == nullptr || line[length - 1] != '\n') continue;
    if (used + length >= kMapsBytes) break;
    std::memcpy(file_->maps + used, line, length);
    used += length;
  }
  std::fclose(maps);
  header().maps_bytes = static_cast<std::uint32_t>(used);
  __atomic_fetch_add(&header().maps_stamp, 1, __ATOMIC_ACQ_REL);
}

void Recorder::detach() {
  [[maybe_unused]] void* const there =
      mmap(file_, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

}  // namespace accel
