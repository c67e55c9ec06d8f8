// The calls of all ranks as lines of a log: in the order in which they were made, or for each collective the
// ranks one after another. Read from the recorder files, so that no rank ever waits for a line.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collect/observer.h"
#include "record/tail.h"
#include "settings/settings.h"

namespace accel {

/// Which lines, and how.
struct CallFilter {
  LogLevel level = LogLevel::Debug;
  LogRanks ranks;
  LogOrder order = LogOrder::Arrival;
  LogFormat format = LogFormat::Text;
  std::string function;      ///< a part of its name; empty: all
  std::string communicator;  ///< the beginning of its name; empty: all
};

/// One line, with what a file's name may want to know of its rank.
struct CallLine {
  std::int32_t rank = -1;
  std::int32_t pid = 0;
  const std::string& host;
  const std::string& text;  ///< ends with a newline
};

class CallLog {
 public:
  explicit CallLog(CallFilter filter);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  /// Another level from now on: calls made before are not told again.
  void set_level(LogLevel level) { filter_.level = level; }

  /// How far each process's rings have been told, by pid: so that somebody else can go on from there.
  using Places = std::map<std::int32_t, std::array<std::uint64_t, 3>>;
  void go_on_from(const Places& places) { places_ = places; }
  Places places() const;

  /// Reads what has come since the last time and tells the lines that are due: those of calls that are over,
  /// or have lasted for a while. `everything`: nothing more will come.
  void tell(const Observer& observer, const Evidence& evidence, bool everything,
            const std::function<void(const CallLine&)>& line);

  /// Whether there is more to read than one round reads.
  bool is_behind() const;
  /// Records that were overwritten before they could be told.
  std::uint64_t lost() const { return lost_; }

 private:
  struct Source;
  struct Entry {
    std::int64_t at_ns = 0;
    Source* source = nullptr;
    Ring ring = Ring::Collectives;
    std::uint64_t position = 0;
    CallRecord call{};
    std::string text;  ///< of a note, as the next four
    NoteKind kind = NoteKind::None;
    std::uint8_t level = 0;
    std::uint8_t flags = 0;
    std::uint64_t number = 0;
  };
  /// What the ranks say one after another: a collective, or their n-th message of that kind.
  using BlockKey = std::pair<std::uint64_t, std::uint64_t>;
  using Block = std::vector<Entry>;

  using Sink = std::function<void(const CallLine&)>;
  void find_sources(const Observer& observer, const Evidence& evidence);
  void read(Source& source);
  void write(Entry& entry, const Sink& line);
  void write(Block block, const Sink& line);
  bool is_chosen(std::int32_t rank, bool message) const;
  static LogLevel level_of(const Entry& entry);
  bool is_wanted(const Entry& entry) const;
  static std::string text_of(const Entry& entry);
  static std::string json_of(const Entry& entry);
  /// Nothing: it is told by itself.
  std::optional<BlockKey> block_of(const Entry& entry) const;
  bool is_whole(const BlockKey& key, const Block& block) const;

  CallFilter filter_;
  Places places_;
  std::map<std::int32_t, std::unique_ptr<Source>> sources_;  ///< by pid
  std::map<std::string, std::int64_t> offsets_;  ///< of the hosts' real time to their monotonic time, ns
  std::vector<Entry> waiting_;                   ///< read, and not due yet
  std::map<BlockKey, Block> blocks_;
  struct Membership {
    std::int32_t size = 0;   ///< of the communicator
    std::int32_t seen = 0;   ///< members that are known
    std::size_t wanted = 0;  ///< of those, whose lines are wanted
  };
  std::map<std::uint64_t, Membership> memberships_;  ///< by communicator key
  std::uint64_t lost_ = 0;
};

}  // namespace accel
