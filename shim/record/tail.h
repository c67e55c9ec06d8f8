// Reads a ring of a recorder file from where it stopped the last time, while its process goes on writing.
#pragma once
#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "record/reader.h"

namespace accel {

/// Entry: CallRecord or Note.
template <class Entry, Ring kRing>
class RecordTail {
 public:
  /// Begins with the oldest that is still there, or at `from`, as next() of an earlier one said.
  explicit RecordTail(std::shared_ptr<const RecordReader> reader, std::uint64_t from = 0)
      : reader_(std::move(reader)), next_(from) {}

  /// The process is gone: what it has not finished writing counts as lost, and is no reason to wait.
  void writer_is_gone() { gone_ = true; }

  /// Calls visit(const Entry&, position) for each entry that has been finished since the last time, in order,
  /// but for at most `most`. How many were overwritten before they could be read.
  template <class Visit>
  std::uint64_t read(Visit&& visit, std::uint64_t most = UINT64_MAX) {
    const std::uint64_t capacity = reader_->capacity(kRing);
    const std::uint64_t end = reader_->begun(kRing);
    std::uint64_t lost = 0;
    const auto skip_overwritten = [&](std::uint64_t begun) {
      const std::uint64_t oldest = begun > capacity ? begun - capacity : 0;
      if (next_ < oldest) lost += oldest - std::exchange(next_, oldest);
    };
    skip_overwritten(end);
    chunk_.resize(std::min<std::uint64_t>(kChunk, capacity));
    const std::uint64_t limit = end - next_ > most ? next_ + most : end;
    while (next_ < limit) {
      const std::uint64_t first = next_;
      const std::size_t got = reader_->copy_entries(
          kRing, first, std::min<std::uint64_t>(chunk_.size(), limit - first), chunk_.data());
      if (got == 0) break;
      // What was begun meanwhile may have overwritten what we have just copied.
      skip_overwritten(reader_->begun(kRing));
      for (; next_ < first + got; ++next_) {
        const Entry& entry = chunk_[next_ - first];
        if (entry.stamp == whole_stamp(next_, capacity)) {
          visit(entry, next_);
        } else if (gone_) {
          ++lost;
        } else {
          return lost;  // it is being written: later
        }
      }
    }
    return lost;
  }

  /// What is there now is not read at all, and not lost.
  void skip_to_end() { next_ = reader_->begun(kRing); }

  /// The position of the next one.
  std::uint64_t next() const { return next_; }
  bool at_end() const { return next_ >= reader_->begun(kRing); }

 private:
  static constexpr std::size_t kChunk = 8192;
  std::shared_ptr<const RecordReader> reader_;
  std::uint64_t next_;
  bool gone_ = false;
  std::vector<Entry> chunk_;
};

using CollectiveTail = RecordTail<CallRecord, Ring::Collectives>;
using UnnumberedTail = RecordTail<CallRecord, Ring::Unnumbered>;
using NoteTail = RecordTail<Note, Ring::Notes>;

}  // namespace accel
