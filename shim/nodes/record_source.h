// A recorder file on its way to another node: what has changed in it since it was last sent.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "record/file_descriptor.h"
#include "record/layout.h"

namespace accel {

inline constexpr std::size_t kRecordPage = 4096;
static_assert(sizeof(RecorderFile::header_page) == kRecordPage);

/// Reads while the process goes on. What arrives is as a reader of the file itself could have seen it: parts
/// are read in a reader's order, each until it is the same twice, and no thread is shown in a call that it
/// has left meanwhile.
class RecordSource {
 public:
  /// `name` in a run directory.
  RecordSource(int directory, const std::string& name);

  /// Receives what has changed: an offset in the file and the bytes there, at most kLongestPart.
  using Sink = std::function<void(std::uint64_t offset, std::string_view bytes)>;
  static constexpr std::size_t kLongestPart = 16 * kRecordPage;
  /// `everything`: of the ring of collectives too, not only the latest kRecentCalls. The header's page comes
  /// apart, since it changes always. False: the file cannot be read any more.
  bool read(bool everything, std::string& header_page, const Sink& sink);
  static constexpr std::uint64_t kRecentCalls = 4096;

  /// Of the file, in bytes.
  std::uint64_t size() const;

  /// The other side has nothing any more.
  void forget() { sent_.clear(); }

 private:
  bool read_page(std::size_t page, char* bytes) const;
  bool copy_page(std::size_t page, char* bytes) const;
  void take(std::size_t page, std::string_view bytes, const Sink& sink);
  void flush(const Sink& sink);

  FileDescriptor file_;
  std::vector<std::size_t> sent_;  ///< hash of each page as it was sent; 0: it holds zeros only
  std::uint64_t part_offset_ = 0;
  std::string part_;
};

}  // namespace accel
