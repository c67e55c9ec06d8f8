#include "nodes/record_copies.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "nodes/record_source.h"
#include "record/file_io.h"
#include "record/reader.h"

namespace accel {

std::string chunk_body(std::int32_t pid, std::uint64_t offset, std::string_view bytes) {
  std::string body;
  put(body, ChunkHead{pid, 0, offset});
  body += bytes;
  return body;
}

std::string process_body(std::int32_t pid, const CopyStatus& status, std::string_view header_page) {
  std::string body;
  put(body, ProcessHead{pid, 0, status});
  body += header_page;
  return body;
}

void ClockOffset::add(std::int64_t sent_ns, std::int64_t there_ns, std::int64_t back_ns) {
  constexpr std::int64_t kGoodFor = 60'000'000'000;  // two clocks drift apart by 1 to 50 us/s
  const std::int64_t round_trip = back_ns - sent_ns;
  if (round_trip < 0) return;
  if (round_trip_ns_ >= 0 && round_trip > round_trip_ns_ && back_ns - found_ns_ < kGoodFor) return;
  round_trip_ns_ = round_trip;
  offset_ns_ = sent_ns + round_trip / 2 - there_ns;
  found_ns_ = back_ns;
}

bool RecordCopies::take(const WireFrame& frame) {
  std::string_view body = frame.body;
  const auto place = [&](std::int32_t pid) -> Arrived* {
    const bool room = arrived_.contains(pid) || arrived_.size() < kMostProcesses;
    return pid > 0 && room ? &arrived_[pid] : nullptr;
  };
  if (frame.kind == FrameKind::Chunk) {
    ChunkHead head;
    if (!take_value(body, head) || body.empty() || head.offset % kRecordPage != 0 || head.offset == 0)
      return false;
    Arrived* const arrived = place(head.pid);
    if (arrived == nullptr) return false;
    arrived->chunks.emplace_back(head.offset, body);
  } else if (frame.kind == FrameKind::Process) {
    ProcessHead head;
    if (!take_value(body, head) || body.size() != kRecordPage) return false;
    Arrived* const arrived = place(head.pid);
    if (arrived == nullptr) return false;
    arrived->status = head.status;
    arrived->header_page = body;
  } else {
    return false;
  }
  waiting_ += frame.body.size();
  return true;
}

void RecordCopies::drop() {
  arrived_.clear();
  waiting_ = 0;
}

void RecordCopies::forget() {
  for (const auto& [pid, start_time] : shown_) unlinkat(run_.fd(), copy_name(node_, pid).c_str(), 0);
  shown_.clear();
}

void RecordCopies::lose(std::int32_t lost, std::int64_t since_ns) {
  for (const auto& [pid, start_time] : shown_) {
    if (lost != 0 && pid != lost) continue;
    const FileDescriptor file(
        openat(run_.fd(), copy_name(node_, pid).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    RecorderHeader header{};
    if (!file || read_at(file.get(), &header, sizeof header, 0) != sizeof header) continue;
    if (header.copied.alive == 0) continue;
    header.copied.alive = 0;
    header.copied.gone_since_ns = since_ns;
    const bool said = header.fatal_signal != 0 || header.phase == Phase::Finalized ||
                      header.phase == Phase::Exiting || header.phase == Phase::Aborting;
    if (!said) {
      header.copied.signal = SIGKILL;
      header.copied.signal_inferred = 1;
    }
    write_at(file.get(), &header, sizeof header, 0);
  }
}

std::string RecordCopies::show(std::int64_t clock_offset_ns) {
  std::string wrong;
  for (auto& [pid, arrived] : arrived_) {
    if (std::string error = show(pid, arrived, clock_offset_ns); !error.empty()) wrong = std::move(error);
  }
  drop();
  return wrong;
}

std::string RecordCopies::show(std::int32_t pid, Arrived& arrived, std::int64_t clock_offset_ns) {
  const std::string name = copy_name(node_, pid);
  RecorderHeader header{};
  std::memcpy(&header, arrived.header_page.data(), std::min(sizeof header, arrived.header_page.size()));
  if (!is_sane(header) || header.pid != pid) return fmt::format("{}: damaged on its way", name);
  const std::uint64_t end = recorder_bytes(header.collectives);
  for (const auto& [offset, bytes] : arrived.chunks) {
    if (offset >= end || bytes.size() > end - offset + kRecordPage)
      return fmt::format("{}: damaged on its way", name);
  }
  // Another process of that pid.
  const auto before = shown_.find(pid);
  if (before != shown_.end() && before->second != header.start_time) unlinkat(run_.fd(), name.c_str(), 0);

  header.begin.monotonic_ns += clock_offset_ns;
  header.latest.monotonic_ns += clock_offset_ns;
  header.copied = arrived.status;
  header.copied.at_ns += clock_offset_ns;
  header.copied.now.monotonic_ns += clock_offset_ns;
  if (header.copied.gone_since_ns != 0) header.copied.gone_since_ns += clock_offset_ns;
  std::memcpy(arrived.header_page.data(), &header, sizeof header);

  const FileDescriptor file(
      openat(run_.fd(), name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct stat info;
  bool whole =
      file && fstat(file.get(), &info) == 0 &&
      (info.st_size == static_cast<off_t>(end) || ftruncate(file.get(), static_cast<off_t>(end)) == 0);
  for (const auto& [offset, bytes] : arrived.chunks) {
    const std::string_view inside = std::string_view(bytes).substr(0, end - offset);
    whole = whole && write_at(file.get(), inside.data(), inside.size(), offset);
  }
  whole = whole && write_at(file.get(), arrived.header_page.data(), arrived.header_page.size(), 0);
  if (!whole) return fmt::format("{}/{} cannot be written: {}", run_.path(), name, std::strerror(errno));
  shown_[pid] = header.start_time;
  return "";
}

}  // namespace accel
