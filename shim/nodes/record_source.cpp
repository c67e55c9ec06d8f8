#include "nodes/record_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "record/file_io.h"
#include "record/reader.h"

namespace accel {
namespace {

constexpr std::size_t kLine = 64;

bool only_zeros(std::string_view bytes) { return bytes.find_first_not_of('\0') == std::string_view::npos; }

std::size_t hash_of(std::string_view bytes) {
  return only_zeros(bytes) ? 0 : std::hash<std::string_view>()(bytes) | 1;
}

constexpr std::size_t page_of(std::size_t offset) { return offset / kRecordPage; }
constexpr std::size_t pages_up_to(std::size_t offset) { return (offset + kRecordPage - 1) / kRecordPage; }

constexpr std::size_t kThreadsFirst = page_of(offsetof(RecorderFile, threads));
constexpr std::size_t kThreadPages = sizeof(RecorderFile::threads) / kRecordPage;
static_assert(offsetof(RecorderFile, threads) % kRecordPage == 0 &&
              sizeof(RecorderFile::threads) % kRecordPage == 0);

}  // namespace

RecordSource::RecordSource(int directory, const std::string& name)
    : file_(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {}

std::uint64_t RecordSource::size() const {
  struct stat info;
  return fstat(file_.get(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

/// Beyond the file's end there are zeros.
bool RecordSource::read_page(std::size_t page, char* bytes) const {
  const ssize_t got = read_at(file_.get(), bytes, kRecordPage, page * kRecordPage);
  if (got < 0) return false;
  std::memset(bytes + got, 0, kRecordPage - static_cast<std::size_t>(got));
  return true;
}

/// A line that never holds still is left out: a reader would not have got it either.
bool RecordSource::copy_page(std::size_t page, char* bytes) const {
  char again[kRecordPage];
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (!read_page(page, bytes) || !read_page(page, again)) return false;
    if (std::memcmp(bytes, again, kRecordPage) == 0) return true;
  }
  for (std::size_t line = 0; line < kRecordPage; line += kLine) {
    if (std::memcmp(bytes + line, again + line, kLine) != 0) std::memset(bytes + line, 0, kLine);
  }
  return true;
}

void RecordSource::flush(const Sink& sink) {
  if (!part_.empty()) sink(part_offset_, part_);
  part_.clear();
}

void RecordSource::take(std::size_t page, std::string_view bytes, const Sink& sink) {
  if (page >= sent_.size()) sent_.resize(page + 1);
  const std::size_t hash = hash_of(bytes);
  if (std::exchange(sent_[page], hash) == hash) return;
  const std::uint64_t offset = page * kRecordPage;
  if (offset != part_offset_ + part_.size() || part_.size() == kLongestPart) flush(sink);
  if (part_.empty()) part_offset_ = offset;
  part_ += bytes;
}

bool RecordSource::read(bool everything, std::string& header_page, const Sink& sink) {
  header_page.resize(kRecordPage);
  if (!file_ || !copy_page(0, header_page.data())) return false;
  RecorderHeader header;
  std::memcpy(&header, header_page.data(), sizeof header);
  if (!is_sane(header)) return false;

  std::string threads(kThreadPages * kRecordPage, '\0');
  for (std::size_t i = 0; i < kThreadPages; ++i) {
    if (!copy_page(kThreadsFirst + i, threads.data() + i * kRecordPage)) return false;
  }
  char page[kRecordPage];
  const auto copy_range = [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      if (!copy_page(i, page)) return false;
      take(i, {page, kRecordPage}, sink);
    }
    return true;
  };
  // What a process has done so far before what it has done last: the former's calls are in the rings then.
  constexpr std::size_t kCommunicators = page_of(offsetof(RecorderFile, communicators));
  constexpr std::size_t kCommunicatorsEnd =
      pages_up_to(offsetof(RecorderFile, communicators) + sizeof(RecorderFile::communicators));
  constexpr std::size_t kPairs = page_of(offsetof(RecorderFile, pairs));
  constexpr std::size_t kPairsEnd = pages_up_to(offsetof(RecorderFile, pairs) + sizeof(RecorderFile::pairs));
  constexpr std::pair<std::size_t, std::size_t> kInOrder[] = {
      {kCommunicators, kCommunicatorsEnd},
      {kPairs, kPairsEnd},
      {kThreadsFirst + kThreadPages, kCommunicators},
      {kCommunicatorsEnd, kPairs},
      {kPairsEnd, pages_up_to(sizeof(RecorderFile))},
  };
  for (const auto& [first, end] : kInOrder) {
    if (!copy_range(first, end)) return false;
  }
  std::uint64_t begun = 0;
  constexpr std::uint64_t kBegun = offsetof(RecorderFile, header) + offsetof(RecorderHeader, positions);
  if (read_at(file_.get(), &begun, sizeof begun, kBegun) != sizeof begun) return false;
  const std::uint64_t size = header.collectives;
  const std::uint64_t most = everything ? size : std::min(size, kRecentCalls);
  const std::uint64_t first = begun - std::min(begun, most);
  // Two pieces where the latest calls go on at the ring's start.
  for (std::uint64_t position = first; position < begun;) {
    const std::uint64_t place = position % size;
    const std::uint64_t count = std::min(begun - position, size - place);
    const std::size_t offset = sizeof(RecorderFile) + place * sizeof(CallRecord);
    if (!copy_range(page_of(offset), pages_up_to(offset + count * sizeof(CallRecord)))) return false;
    position += count;
  }

  // A thread that has gone on since was in a call whose record may be another's by now.
  for (std::size_t i = 0; i < kThreadPages; ++i) {
    char* const before = threads.data() + i * kRecordPage;
    if (!copy_page(kThreadsFirst + i, page)) return false;
    for (std::size_t at = 0; at < kRecordPage; at += sizeof(ThreadRecord)) {
      ThreadRecord was;
      ThreadRecord is;
      std::memcpy(&was, before + at, sizeof was);
      std::memcpy(&is, page + at, sizeof is);
      if (was.tid != is.tid || was.current != is.current) was.current = 0;
      if (was.tid != is.tid || was.driver_wait != is.driver_wait) was.driver_wait = 0;
      std::memcpy(before + at, &was, sizeof was);
    }
    take(kThreadsFirst + i, {before, kRecordPage}, sink);
  }
  flush(sink);
  return true;
}

}  // namespace accel
