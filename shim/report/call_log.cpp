#include "report/call_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "judge/members.h"
#include "report/log.h"
#include "report/shape.h"

namespace accel {
namespace {

/// How long a line is held back: for its call to return, and for those of other ranks that came before.
constexpr std::int64_t kHold = 200'000'000;
/// Read at once of each ring, so that memory stays bounded: the rest follows in the next round.
constexpr std::uint64_t kBatch = 32768;
/// Collectives whose ranks are waited for before the first of them is told as it is.
constexpr std::size_t kMostBlocks = 100'000;
/// The key under which messages in order are collected; no communicator has it.
constexpr std::uint64_t kMessages = 0;

/// What changes who takes part, not what is computed.
bool is_life_cycle(Function function) {
  switch (function) {
    case Function::Finalize:
    case Function::Comm_free:
    case Function::Comm_disconnect:
    case Function::Comm_create_group:
    case Function::NcclCommInitRank:
    case Function::NcclCommSplit:
    case Function::NcclCommShrink:
    case Function::NcclCommFinalize:
    case Function::NcclCommDestroy:
      return true;
    default:
      return traits(function).creates;
  }
}

std::string clock_text(std::int64_t realtime_ns, const char* format) {
  return fmt::format("{}.{:03}", local_time(realtime_ns, format), realtime_ns / 1'000'000 % 1000);
}

/// Milliseconds with three digits that count.
std::string milliseconds(std::int64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  return fmt::format("{:.{}f} ms", ms, ms < 0.1 ? 4 : ms < 10 ? 2 : 1);
}

}  // namespace

struct CallLog::Source {
  Source(const std::shared_ptr<const RecordReader>& its, const std::array<std::uint64_t, 3>& from)
      : reader(its), collectives(its, from[0]), unnumbered(its, from[1]), notes(its, from[2]) {}

  std::shared_ptr<const RecordReader> reader;
  CollectiveTail collectives;
  UnnumberedTail unnumbered;
  NoteTail notes;
  ProcessEvidence process;
  std::map<std::uint16_t, CommunicatorRecord> communicators;  ///< by slot
  std::map<DatatypeId, DatatypeEvidence> datatypes;
  std::int64_t realtime_offset_ns = 0;      ///< one for all of a host
  std::array<std::int64_t, 3> latest_ns{};  ///< of each ring

  /// The ticks' rate is known the better the longer the process has run: what came later stays later.
  std::int64_t time_of(Ring ring, std::uint64_t ticks) {
    std::int64_t& latest = latest_ns[static_cast<std::size_t>(ring)];
    return latest = std::max(latest, reader->monotonic(ticks));
  }
  bool is_behind() const { return !collectives.at_end() || !unnumbered.at_end() || !notes.at_end(); }
  const CommunicatorRecord* communicator(std::uint16_t slot) const {
    const auto found = communicators.find(slot);
    return found != communicators.end() ? &found->second : nullptr;
  }
  const DatatypeEvidence& datatype(DatatypeId id) {
    const auto found = datatypes.find(id);
    return found != datatypes.end() ? found->second
                                    : datatypes.emplace(id, reader->datatype(id)).first->second;
  }
};

CallLog::CallLog(CallFilter filter) : filter_(std::move(filter)) {}
CallLog::~CallLog() = default;

void CallLog::find_sources(const Observer& observer, const Evidence& evidence) {
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
    const ProcessEvidence& process = evidence.processes[i];
    std::unique_ptr<Source>& source = sources_[process.pid];
    if (!source) {
      source = std::make_unique<Source>(observer.shared_reader(i), places_[process.pid]);
      const RecorderHeader& header = source->reader->header();
      source->realtime_offset_ns =
          offsets_.emplace(process.host, header.begin_realtime_ns - header.begin.monotonic_ns).first->second;
    }
    source->process = process;
    for (const CommunicatorEvidence& one : process.communicators)
      source->communicators[one.slot] = one.record;
    if (process.alive) continue;
    source->collectives.writer_is_gone();
    source->unnumbered.writer_is_gone();
    source->notes.writer_is_gone();
  }
  memberships_.clear();
  for (const auto& [pid, source] : sources_) {
    const auto add = [&, rank = source->process.world_rank](std::uint64_t key, std::int32_t size) {
      Membership& one = memberships_[key];
      one.size = std::max(one.size, size);
      ++one.seen;
      one.wanted += is_chosen(rank, key == kMessages) ? 1 : 0;
    };
    add(kMessages, source->process.world_size);
    for (const auto& [slot, communicator] : source->communicators) add(communicator.key, communicator.size);
  }
}

CallLog::Places CallLog::places() const {
  Places places = places_;
  for (const auto& [pid, source] : sources_)
    places[pid] = {source->collectives.next(), source->unnumbered.next(), source->notes.next()};
  // What is still held back is to be read again by whoever comes after us.
  const auto hold_back = [&](const Entry& entry) {
    auto& place = places[entry.source->process.pid][static_cast<std::size_t>(entry.ring)];
    place = std::min(place, entry.position);
  };
  for (const Entry& entry : waiting_) hold_back(entry);
  for (const auto& [key, block] : blocks_) {
    for (const Entry& entry : block) hold_back(entry);
  }
  return places;
}

bool CallLog::is_behind() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source.second->is_behind(); });
}

/// What a program says it means to be read, of all ranks unless somebody has chosen some.
bool CallLog::is_chosen(std::int32_t rank, bool message) const {
  return filter_.ranks.contains(rank) || (message && filter_.ranks.by_default);
}

LogLevel CallLog::level_of(const Entry& entry) {
  if (entry.ring == Ring::Notes) return static_cast<LogLevel>(entry.level);
  return is_life_cycle(entry.call.function) ? LogLevel::Info : LogLevel::Debug;
}

bool CallLog::is_wanted(const Entry& entry) const {
  const std::int32_t rank = entry.source->process.world_rank;
  const bool chosen = is_chosen(rank, entry.kind == NoteKind::Log);
  if (!chosen) return false;
  if (entry.ring == Ring::Notes) {
    const bool others = (entry.flags & kNoteMainOnly) != 0 && rank > 0;
    return !others && level_of(entry) >= filter_.level && filter_.function.empty() &&
           filter_.communicator.empty();
  }
  const Function function = entry.call.function;
  if (function == Function::None) return false;  // taken back
  if (level_of(entry) < filter_.level ||
      traits(function).name.find(filter_.function) == std::string_view::npos)
    return false;
  if (filter_.communicator.empty()) return true;
  const CommunicatorRecord* communicator = entry.source->communicator(entry.call.communicator);
  return communicator != nullptr && communicator_name(communicator->key).starts_with(filter_.communicator);
}

void CallLog::read(Source& source) {
  const auto add_calls = [&](auto& tail, Ring ring) {
    lost_ += tail.read(
        [&](const CallRecord& call, std::uint64_t position) {
          Entry entry;
          entry.at_ns = source.time_of(ring, call.started);
          entry.source = &source;
          entry.ring = ring;
          entry.position = position;
          entry.call = call;
          if (is_wanted(entry)) waiting_.push_back(std::move(entry));
        },
        kBatch);
  };
  if (filter_.level <= LogLevel::Info) {
    add_calls(source.collectives, Ring::Collectives);
    add_calls(source.unnumbered, Ring::Unnumbered);
  } else {
    source.collectives.skip_to_end();
    source.unnumbered.skip_to_end();
  }
  bool goes_on = false;
  lost_ += source.notes.read(
      [&](const Note& note, std::uint64_t position) {
        const std::string text(note.text, strnlen(note.text, kNoteText));
        if (note.kind == NoteKind::Continued) {
          if (goes_on) waiting_.back().text += text;
          return;
        }
        Entry entry;
        entry.at_ns = source.time_of(Ring::Notes, note.at);
        entry.source = &source;
        entry.ring = Ring::Notes;
        entry.position = position;
        entry.text = text;
        entry.kind = note.kind;
        entry.level = note.level;
        entry.flags = note.flags;
        entry.number = note.number;
        goes_on = is_wanted(entry);
        if (goes_on) waiting_.push_back(std::move(entry));
      },
      kBatch);
}

std::optional<CallLog::BlockKey> CallLog::block_of(const Entry& entry) const {
  if (entry.ring == Ring::Notes) {
    if ((entry.flags & kNoteInOrder) == 0) return std::nullopt;
    return BlockKey{kMessages, entry.number};
  }
  if (filter_.order != LogOrder::Rank || !traits(entry.call.function).numbered) return std::nullopt;
  const CommunicatorRecord* communicator = entry.source->communicator(entry.call.communicator);
  if (communicator == nullptr) return std::nullopt;
  return BlockKey{communicator->key, entry.call.sequence};
}

/// Whether all ranks have come whose lines are wanted.
bool CallLog::is_whole(const BlockKey& key, const Block& block) const {
  const auto found = memberships_.find(key.first);
  return found != memberships_.end() && found->second.seen >= found->second.size &&
         block.size() >= found->second.wanted;
}

void CallLog::tell(const Observer& observer, const Evidence& evidence, bool everything, const Sink& line) {
  find_sources(observer, evidence);
  // Of a process that is read up to here, others may still have older lines.
  std::int64_t due = everything ? INT64_MAX : evidence.now_ns - kHold;
  for (auto& [pid, source] : sources_) {
    read(*source);
    if (source->is_behind() && !waiting_.empty()) due = std::min(due, waiting_.back().at_ns);
  }
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Entry& a, const Entry& b) { return a.at_ns < b.at_ns; });
  const auto end =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Entry& entry) { return entry.at_ns > due; });
  for (auto entry = waiting_.begin(); entry != end; ++entry) {
    const auto key = block_of(*entry);
    if (!key) {
      write(*entry, line);
      continue;
    }
    Block& block = blocks_[*key];
    block.push_back(std::move(*entry));
    if (is_whole(*key, block)) write(std::move(blocks_.extract(*key).mapped()), line);
  }
  waiting_.erase(waiting_.begin(), end);
  // The rest of those whose other ranks will not come, or not soon.
  const bool nothing_more = everything && !is_behind();
  if (!nothing_more && blocks_.size() <= kMostBlocks) return;
  std::vector<Block> rest;
  for (auto& [key, block] : blocks_) rest.push_back(std::move(block));
  blocks_.clear();
  std::sort(rest.begin(), rest.end(),
            [](const Block& a, const Block& b) { return a.front().at_ns < b.front().at_ns; });
  for (Block& block : rest) write(std::move(block), line);
}

void CallLog::write(Block block, const Sink& line) {
  std::stable_sort(block.begin(), block.end(), [](const Entry& a, const Entry& b) {
    return a.source->process.world_rank < b.source->process.world_rank;
  });
  for (Entry& entry : block) write(entry, line);
}

void CallLog::write(Entry& entry, const Sink& line) {
  // It had not returned when it was read.
  if (entry.ring != Ring::Notes && entry.call.returned == 0) {
    CallRecord again{};
    const std::uint64_t capacity = entry.source->reader->capacity(entry.ring);
    if (entry.source->reader->copy_entries(entry.ring, entry.position, 1, &again) == 1 &&
        again.stamp == whole_stamp(entry.position, capacity))
      entry.call = again;
  }
  const std::string text = filter_.format == LogFormat::Json ? json_of(entry) : text_of(entry);
  line({entry.source->process.world_rank, entry.source->process.pid, entry.source->process.host, text});
}

std::string CallLog::text_of(const Entry& entry) {
  Source& source = *entry.source;
  std::string text =
      fmt::format("[rank {}/{}] {} {} ", source.process.world_rank, source.process.world_size,
                  clock_text(entry.at_ns + source.realtime_offset_ns, "%H:%M:%S"), name_of(level_of(entry)));
  if (entry.ring == Ring::Notes) {
    if (entry.kind == NoteKind::RegionBegin) text += "begin of ";
    if (entry.kind == NoteKind::RegionEnd) text += "end of ";
    std::string_view message = entry.text;
    if (message.ends_with('\n')) message.remove_suffix(1);
    const std::string head = text;
    for (const char c : message) {
      text += c;
      if (c == '\n') text += head;
    }
    return text + "\n";
  }
  const CallRecord& call = entry.call;
  const FunctionTraits& what = traits(call.function);
  text += what.name;
  if (call.sequence != 0) text += fmt::format(" #{}", call.sequence);
  if (const CommunicatorRecord* communicator = source.communicator(call.communicator))
    text += fmt::format(" comm {}", communicator_name(communicator->key));
  std::vector<std::int64_t> counts;
  if (const auto vectors = source.reader->vectors(call)) counts = significant_counts(call, *vectors);
  if (const std::string made = shape(call, source.datatype(call.datatype), counts); !made.empty())
    text += " " + made;
  if (what.on_stream && call.tag < kUntrackedStream) text += fmt::format(" stream {}", call.tag);
  if (const std::uint64_t ticks = Duration::decode(call.returned)) {
    text += "  " + milliseconds(source.reader->monotonic(call.started + ticks) - entry.at_ns);
  } else if (call.returned == 0 && call.function != Function::Finalize) {
    text += "  (has not returned)";
  }
  return text + "\n";
}

std::string CallLog::json_of(const Entry& entry) {
  using nlohmann::json;
  Source& source = *entry.source;
  json object = {{"time", clock_text(entry.at_ns + source.realtime_offset_ns, "%Y-%m-%dT%H:%M:%S")},
                 {"rank", source.process.world_rank},
                 {"size", source.process.world_size},
                 {"host", source.process.host},
                 {"pid", source.process.pid},
                 {"level", name_of(level_of(entry))}};
  if (entry.ring == Ring::Notes) {
    const NoteKind kind = entry.kind;
    object[kind == NoteKind::RegionBegin ? "begin"
           : kind == NoteKind::RegionEnd ? "end"
                                         : "message"] = entry.text;
  } else {
    const CallRecord& call = entry.call;
    const FunctionTraits& what = traits(call.function);
    object["call"] = what.name;
    if (call.sequence != 0) object["sequence"] = call.sequence;
    if (const CommunicatorRecord* communicator = source.communicator(call.communicator))
      object["communicator"] = fmt::format("{:016x}", communicator->key);
    if (what.data) {
      object["datatype"] = source.datatype(call.datatype).name;
      if (!what.vector) object["count"] = call.count;
      if (const auto vectors = source.reader->vectors(call))
        object["counts"] = significant_counts(call, *vectors);
    }
    if (what.reduces && call.op != 0) object["op"] = name_of_op(call.op);
    if (what.rooted) object["root"] = call.root;
    if (what.on_stream && call.tag < kUntrackedStream) object["stream"] = call.tag;
    object["returned"] = call.returned != 0;
    if (const std::uint64_t ticks = Duration::decode(call.returned)) {
      object["duration_ms"] =
          static_cast<double>(source.reader->monotonic(call.started + ticks) - entry.at_ns) / 1e6;
    }
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace accel
