#include "record/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "record/file_io.h"
#include "record/fixed_text.h"

namespace accel {
namespace {

constexpr std::size_t ring_offset(Ring ring) {
  return ring == Ring::Collectives  ? sizeof(RecorderFile)
         : ring == Ring::Unnumbered ? offsetof(RecorderFile, unnumbered)
                                    : offsetof(RecorderFile, notes);
}

}  // namespace

bool is_sane(const RecorderHeader& header) {
  return header.magic == kRecorderMagic && header.version == kLayoutVersion &&
         header.bytes == sizeof(RecorderFile) && header.pid > 0 && std::has_single_bit(header.collectives) &&
         header.collectives <= kMostCollectives && header.world_rank >= -1 && header.world_size >= 0;
}

Result<std::shared_ptr<RecordReader>> RecordReader::open(int directory, const std::string& name) {
  using Failure = Result<std::shared_ptr<RecordReader>>;
  FileDescriptor file(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return Failure::failure(fmt::format("cannot open {}: {}", name, std::strerror(errno)));
  struct stat info;
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return Failure::failure(fmt::format("{} is not a file of ours", name));
  }
  std::shared_ptr<RecordReader> reader(new RecordReader(std::move(file)));
  if (!reader->read_header(reader->header_)) {
    return Failure::failure(fmt::format("{} is no recorder file of this version, or damaged", name));
  }
  return reader;
}

bool RecordReader::copy(std::size_t offset, void* target, std::size_t bytes) const {
  return read_at(file_.get(), target, bytes, offset) == static_cast<ssize_t>(bytes);
}

bool RecordReader::copy_stable(std::size_t offset, void* target, std::size_t bytes) const {
  std::vector<char> again(bytes);
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (!copy(offset, target, bytes) || !copy(offset, again.data(), bytes)) return false;
    if (std::memcmp(target, again.data(), bytes) == 0) return true;
  }
  return false;
}

bool RecordReader::read_header(RecorderHeader& header) const {
  return copy(offsetof(RecorderFile, header), &header, sizeof header) && is_sane(header);
}

CopyStatus RecordReader::copied() const {
  CopyStatus status{};
  copy(offsetof(RecorderFile, header) + offsetof(RecorderHeader, copied), &status, sizeof status);
  return status;
}

std::optional<CallRecord> RecordReader::record_at(Ring ring, std::uint64_t position) const {
  CallRecord record;
  const std::size_t offset = ring_offset(ring) + (position % capacity(ring)) * sizeof record;
  if (!copy_stable(offset, &record, sizeof record) || record.stamp != whole_stamp(position, capacity(ring)))
    return std::nullopt;
  return record;
}

std::vector<BlockedCall> RecordReader::blocked(const RecorderHeader& header,
                                               std::vector<DriverWait>* driver_waits) const {
  const std::size_t count = std::min<std::size_t>(header.threads, kMaxThreads);
  std::vector<ThreadRecord> threads(count);
  std::vector<BlockedCall> result;
  if (count == 0 || !copy(offsetof(RecorderFile, threads), threads.data(), count * sizeof(ThreadRecord)))
    return result;
  const ClockPair now = this->now();
  for (const ThreadRecord& thread : threads) {
    if (driver_waits != nullptr && thread.tid != 0 && thread.driver_wait != 0 &&
        thread.driver_wait <= static_cast<std::uint32_t>(DriverWait::Event))
      driver_waits->push_back(static_cast<DriverWait>(thread.driver_wait));
    if (thread.tid == 0 || thread.current < 2) continue;
    BlockedCall call;
    call.tid = thread.tid;
    const Ring ring = (thread.current & 1) != 0 ? Ring::Unnumbered : Ring::Collectives;
    if (const auto record = record_at(ring, thread.current / 2 - 1)) {
      call.record = *record;
      call.since_ns = to_monotonic(record->started, header.begin, now);
    } else {
      call.since_ns = now.monotonic_ns;
    }
    result.push_back(call);
  }
  return result;
}

bool RecordReader::read(ProcessEvidence& process) const {
  struct stat info;
  const bool whole =
      fstat(file_.get(), &info) == 0 && info.st_size >= static_cast<off_t>(sizeof(RecorderFile));
  RecorderHeader header;
  if (!whole || !read_header(header) || header.collectives != header_.collectives ||
      info.st_size < static_cast<off_t>(recorder_bytes(header.collectives)))
    return false;
  header_ = header;
  process.pid = header_.pid;
  process.host = text_of(header_.host);
  process.program = text_of(header_.program);
  process.library = text_of(header_.library);
  process.gpu = text_of(header_.gpu);
  process.nccl = text_of(header_.nccl);
  process.nccl_environment = text_of(header_.nccl_environment);
  process.world_key = header_.world_key;
  process.world_rank = header_.world_rank;
  process.world_size = header_.world_size;
  process.phase = header_.phase;
  process.exit_status = header_.exit_status;
  process.signal = header_.fatal_signal;
  process.terminated = header_.terminated != 0;
  process.started_ns = header_.begin.monotonic_ns;
  process.python = header_.python != 0;
  process.libraries = header_.libraries;

  const std::vector<BlockedCall> before = blocked(header_, &process.driver_waits);
  const std::size_t count = std::min<std::size_t>(header_.communicators, kMaxCommunicators);
  for (std::size_t slot = 0; slot < count; ++slot) {
    CommunicatorEvidence communicator;
    communicator.slot = static_cast<std::uint16_t>(slot);
    const std::size_t offset = offsetof(RecorderFile, communicators) + slot * sizeof(CommunicatorRecord);
    if (!copy_stable(offset, &communicator.record, sizeof(CommunicatorRecord))) continue;
    const CommunicatorRecord& record = communicator.record;
    const bool sane = (record.stamp & 1) == 0 && record.key != 0 && record.size > 0 && record.rank >= 0 &&
                      record.rank < record.size;
    if (sane) process.communicators.push_back(communicator);
  }
  process.pairs.resize(std::min<std::size_t>(header_.pairs, kMaxPairs));
  if (!copy(offsetof(RecorderFile, pairs), process.pairs.data(), process.pairs.size() * sizeof(PairRecord)))
    process.pairs.clear();
  std::vector<StreamRecord> streams(kMaxStreams);
  if (header_.libraries & kUsesNccl &&
      copy(offsetof(RecorderFile, streams), streams.data(), streams.size() * sizeof(StreamRecord))) {
    const ClockPair now = this->now();
    for (const StreamRecord& stream : streams) {
      if (stream.launched == 0) break;
      process.streams.push_back({stream, to_monotonic(stream.since, header_.begin, now)});
    }
  }
  process.broken = header_.broken;
  const std::size_t episodes = std::min<std::size_t>(header_.episodes, kMaxEpisodes);
  for (std::size_t i = 0; i < episodes; ++i) {
    const std::size_t place = (header_.episodes - episodes + i) % kMaxEpisodes;
    MemoryEpisode episode;
    const bool whole =
        copy_stable(offsetof(RecorderFile, episodes) + place * sizeof episode, &episode, sizeof episode);
    if (whole && (episode.stamp & 1) == 0 &&
        (episode.state == EpisodeState::Open || episode.state == EpisodeState::GaveUp))
      process.episodes.push_back(episode);
  }
  const std::vector<BlockedCall> after = blocked(header_);
  for (const BlockedCall& call : before) {
    for (const BlockedCall& again : after) {
      const bool same = call.tid == again.tid && call.record.stamp == again.record.stamp &&
                        call.record.started == again.record.started && call.record.returned == 0;
      if (same) process.blocked.push_back(again);
    }
  }
  return true;
}

std::optional<CallRecord> RecordReader::call(std::uint16_t communicator, std::uint64_t sequence) const {
  CommunicatorRecord last;
  const std::size_t slot = communicator % kMaxCommunicators;
  if (!copy_stable(offsetof(RecorderFile, communicators) + slot * sizeof last, &last, sizeof last))
    return std::nullopt;
  if (sequence == 0 || sequence > last.sequence) return std::nullopt;
  // Other communicators' calls lie in between, so this is the nearest place where it can be; then backwards.
  std::uint64_t position = last.position - std::min(last.position, last.sequence - sequence);
  constexpr std::size_t kChunk = 64;
  CallRecord chunk[kChunk];
  const std::uint64_t size = header_.collectives;
  for (std::uint64_t seen = 0; seen < size;) {
    const std::uint64_t first = position % size;
    const std::size_t take = std::min<std::uint64_t>({kChunk, first + 1, position + 1, size - seen});
    const std::uint64_t low = position - (take - 1);
    if (!copy(ring_offset(Ring::Collectives) + (low % size) * sizeof(CallRecord), chunk,
              take * sizeof(CallRecord))) {
      return std::nullopt;
    }
    for (std::size_t i = take; i-- > 0;) {
      const CallRecord& record = chunk[i];
      if (record.stamp != whole_stamp(low + i, size)) continue;  // being written, or gone
      if (record.communicator != communicator || record.sequence > sequence) continue;
      if (record.sequence < sequence) return std::nullopt;
      return record_at(Ring::Collectives, low + i);
    }
    seen += take;
    if (low == 0) break;
    position = low - 1;
  }
  return std::nullopt;
}

std::vector<CallRecord> RecordReader::latest(Ring ring, std::size_t most) const {
  RecorderHeader header;
  if (!read_header(header)) return {};
  const std::uint64_t end = header.positions[static_cast<std::size_t>(ring)];
  const std::uint64_t begin = end - std::min<std::uint64_t>({end, most, capacity(ring)});
  std::vector<CallRecord> result;
  for (std::uint64_t position = begin; position < end;) {
    const std::uint64_t place = position % capacity(ring);
    const std::uint64_t take = std::min(end - position, capacity(ring) - place);
    std::vector<CallRecord> chunk(take);
    if (!copy(ring_offset(ring) + place * sizeof(CallRecord), chunk.data(), take * sizeof(CallRecord)))
      return {};
    for (std::uint64_t i = 0; i < take; ++i) {
      if (chunk[i].stamp == whole_stamp(position + i, capacity(ring))) result.push_back(chunk[i]);
    }
    position += take;
  }
  return result;
}

std::optional<CallRecord> RecordReader::pair_call(Function function, std::uint16_t communicator,
                                                  std::int32_t peer, std::uint64_t number) const {
  for (const CallRecord& record : latest(Ring::Unnumbered, kUnnumbered)) {
    if (record.function == function && record.communicator == communicator && record.root == peer &&
        record.sequence == number)
      return record;
  }
  return std::nullopt;
}

std::vector<CallRecord> RecordReader::recent_on_streams(std::size_t most) const {
  std::vector<CallRecord> result = latest(Ring::Collectives, most);
  for (const CallRecord& record : latest(Ring::Unnumbered, most)) result.push_back(record);
  std::erase_if(result, [](const CallRecord& record) { return !traits(record.function).on_stream; });
  std::stable_sort(result.begin(), result.end(),
                   [](const CallRecord& a, const CallRecord& b) { return a.started < b.started; });
  return result;
}

std::int64_t RecordReader::started_ns(const CallRecord& record) const {
  return to_monotonic(record.started, header_.begin, now());
}

std::optional<VectorEvidence> RecordReader::vectors(const CallRecord& record) const {
  if (!traits(record.function).vector || record.count < 0) return std::nullopt;
  const auto place = static_cast<std::uint64_t>(record.count);
  const std::uint64_t index = place % kVectorWords;
  const std::size_t offset = offsetof(RecorderFile, vectors) + index * 8;
  VectorHead head;
  if (index + sizeof head / 8 > kVectorWords || !copy(offset, &head, sizeof head)) return std::nullopt;
  const std::size_t bytes = 2 * std::size_t{head.size} * sizeof(PeerBlock);
  if (head.position != place || head.size == 0 || index * 8 + sizeof head + bytes > kVectorWords * 8)
    return std::nullopt;
  std::vector<PeerBlock> blocks(2 * std::size_t{head.size});
  if (!copy(offset + sizeof head, blocks.data(), bytes)) return std::nullopt;
  // Overwritten while we read?
  VectorHead again;
  if (!copy(offset, &again, sizeof again) || again.position != place) return std::nullopt;
  VectorEvidence evidence;
  const auto middle = blocks.begin() + head.size;
  if ((head.flags & kVectorSends) != 0) evidence.sends.assign(blocks.begin(), middle);
  if ((head.flags & kVectorExpects) != 0) evidence.expects.assign(middle, blocks.end());
  evidence.same_everywhere = (head.flags & kVectorSame) != 0;
  return evidence;
}

DatatypeEvidence RecordReader::datatype(DatatypeId id) const {
  if (id == 0) return {{}, "", false};
  if (id < std::size(kDatatypes)) {
    const TypeSignature& signature = kDatatypes[id].signature;
    const bool simple = signature.only != BasicType::None && signature.length == 1;
    return {signature, simple ? std::string(name_of(signature.only)) : std::string(kDatatypes[id].name),
            true};
  }
  DatatypeRecord record;
  if (const NcclDatatype* nccl = nccl_datatype(id))
    return {TypeSignature::of(nccl->type), std::string(name_of(nccl->type)), true};
  if (id >= kNcclDatatype && id < kDerived)
    return {{}, fmt::format("datatype {}", id - kNcclDatatype), false};
  if (id < kDerived || id - kDerived >= static_cast<int>(kMaxDatatypes) ||
      !copy(offsetof(RecorderFile, datatypes) +
                std::size_t{static_cast<std::size_t>(id - kDerived)} * sizeof record,
            &record, sizeof record)) {
    return {{}, "a derived datatype", false};
  }
  return {{record.hash, record.length, record.only}, text_of(record.name), true};
}

SiteEvidence RecordReader::site(const CallRecord& record) const {
  CallSite site;
  if (record.site == 0 || record.site >= kMaxSites ||
      !copy(offsetof(RecorderFile, sites) + record.site * sizeof site, &site, sizeof site) ||
      site.complete != 1) {
    return {};
  }
  SiteEvidence result;
  result.addresses.assign(site.pcs, site.pcs + std::min<std::size_t>(site.depth, kSiteDepth));
  if (site.text != 0 && site.text <= kSiteTextBytes) {
    std::string text(std::min<std::size_t>(kSiteTextBytes - (site.text - 1), 8192), '\0');
    if (copy(offsetof(RecorderFile, site_text) + site.text - 1, text.data(), text.size()))
      result.python.assign(text.c_str());
  }
  return result;
}

std::uint64_t RecordReader::begun(Ring ring) const {
  std::uint64_t position = 0;
  const std::size_t offset = offsetof(RecorderFile, header) + offsetof(RecorderHeader, positions) +
                             8 * static_cast<std::size_t>(ring);
  return copy(offset, &position, sizeof position) ? position : 0;
}

std::size_t RecordReader::copy_entries(Ring ring, std::uint64_t first, std::size_t count,
                                       void* entries) const {
  const std::size_t bytes = ring == Ring::Notes ? sizeof(Note) : sizeof(CallRecord);
  const std::uint64_t place = first % capacity(ring);
  count = std::min<std::size_t>(count, capacity(ring) - place);
  return copy(ring_offset(ring) + place * bytes, entries, count * bytes) ? count : 0;
}

std::vector<std::pair<int, DeviceMemory>> RecordReader::memory() const {
  DeviceMemory all[kMaxDevices]{};
  std::vector<std::pair<int, DeviceMemory>> used;
  if (!copy(offsetof(RecorderFile, memory), all, sizeof all)) return used;
  for (int device = 0; const DeviceMemory& one : all) {
    if (one.allocations != 0 || one.failures != 0) used.emplace_back(device, one);
    ++device;
  }
  return used;
}

std::vector<std::pair<std::int64_t, std::int64_t>> RecordReader::memory_history() const {
  MemoryHistory history{};
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  if (!copy_stable(offsetof(RecorderFile, memory_history), &history, sizeof history)) return result;
  const std::size_t count = std::min<std::size_t>(history.count, kMemorySamples);
  for (std::size_t i = 0; i < count; ++i)
    result.emplace_back(monotonic(history.samples[i].at), history.samples[i].bytes);
  return result;
}

namespace {

/// Requests are numbered; somebody else's later one is answered as well.
bool answers(std::uint32_t answered, std::uint32_t request) {
  return static_cast<std::int32_t>(answered - request) >= 0;
}

}  // namespace

std::vector<StackRecord> RecordReader::stacks(std::uint32_t request) const {
  std::vector<StackRecord> all(kMaxStacks);
  if (!copy(offsetof(RecorderFile, stacks), all.data(), all.size() * sizeof(StackRecord))) return {};
  std::erase_if(all, [&](const StackRecord& stack) {
    return stack.tid == 0 || !answers(stack.request, request) || stack.depth > kStackDepth;
  });
  return all;
}

std::unique_ptr<StackCopy> RecordReader::stack_copy(const StackRecord& stack) const {
  auto result = std::make_unique<StackCopy>();
  for (std::size_t i = 0; i < kMaxStackCopies; ++i) {
    const std::size_t offset = offsetof(RecorderFile, stack_copies) + i * sizeof(StackCopy);
    const bool there = copy(offset, result.get(), sizeof(StackCopy)) && result->tid == stack.tid &&
                       result->request == stack.request && result->bytes <= kStackCopyBytes;
    if (there) return result;
  }
  return nullptr;
}

std::optional<std::string> RecordReader::python(std::uint32_t request) const {
  RecorderHeader header;
  if (!read_header(header) || header.python_request == 0 || !answers(header.python_request, request))
    return std::nullopt;
  std::string result(std::min<std::size_t>(header.python_bytes, kPythonBytes), '\0');
  if (!copy(offsetof(RecorderFile, python), result.data(), result.size())) return std::nullopt;
  return result;
}

std::string RecordReader::maps() const {
  RecorderHeader header;
  if (!read_header(header)) return {};
  std::string result(std::min<std::size_t>(header.maps_bytes, kMapsBytes), '\0');
  if (!copy(offsetof(RecorderFile, maps), result.data(), result.size())) return {};
  return result;
}

}  // namespace accel
