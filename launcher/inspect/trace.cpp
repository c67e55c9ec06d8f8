#include "launcher/inspect/trace.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/failure.h"
#include "launcher/inspect/timed_calls.h"
#include "report/shape.h"

namespace accel {
namespace {

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Chrome knows processes and threads: a rank is a process, a track a thread of it.
class Trace {
 public:
  Trace(const std::string& path, std::int64_t begin_ns)
      : path_(path), file_(std::fopen(path.c_str(), "we"), &std::fclose), begin_ns_(begin_ns) {
    if (!file_) fail();
  }

  void open(const TraceTitle& title, std::int64_t begin_realtime_ns) {
    add("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"tool\":\"libaccel " ACCEL_VERSION
        "\",\"run\":{},\"command\":{},\"begin_ns\":\"{}\"}},\"traceEvents\":[",
        quoted(title.run), quoted(title.command), begin_realtime_ns);
  }
  void close() {
    add("\n]}}\n");
    flush();
    if (std::fflush(file_.get()) != 0) fail();
  }

  /// `rest`: more members of the event's object, each with a comma in front.
  void event(char phase, std::uint32_t rank, int track, std::int64_t at_ns, const std::string& name,
             const std::string& rest = "") {
    add("{}\n{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"name\":{}{}}}", is_first_ ? "" : ",",
        phase, rank + 1, track + 1, microseconds(at_ns - begin_ns_), name, rest);
    is_first_ = false;
  }
  void slice(std::uint32_t rank, int track, std::int64_t at_ns, std::int64_t length_ns,
             const std::string& name, const std::string& rest) {
    event('X', rank, track, at_ns, name, fmt::format(",\"dur\":{:.3f}{}", microseconds(length_ns), rest));
  }
  void describe(std::uint32_t rank, int track, const char* what, const std::string& value) {
    event('M', rank, track, begin_ns_, fmt::format("\"{}\"", what), fmt::format(",\"args\":{{{}}}", value));
  }

 private:
  static double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Arguments>(arguments)...);
    constexpr std::size_t kBlock = 1 << 16;
    if (buffer_.size() > kBlock) flush();
  }
  void flush() {
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_.get()) != buffer_.size()) fail();
    buffer_.clear();
  }
  [[noreturn]] void fail() const {
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t begin_ns_;
  fmt::memory_buffer buffer_;
  bool is_first_ = true;
};

constexpr int kRegions = 1000;

std::string track_name(int track) {
  if (track == TimedCall::kHost) return "collectives";
  if (track == TimedCall::kPointToPoint) return "point-to-point";
  if (track == kRegions) return "program";
  const int stream = track - TimedCall::kFirstStream;
  return stream == kCapturedStream    ? "captured in a graph"
         : stream == kUntrackedStream ? "other streams"
                                      : fmt::format("stream {}", stream);
}

void add_calls(Trace& trace, std::uint32_t rank, const std::vector<TimedCall>& calls) {
  for (const TimedCall& call : calls) {
    const std::string name = fmt::format("\"{}\"", traits(call.function).name);
    std::string about = fmt::format("\"bytes\":{}", call.bytes);
    if (call.sequence != 0) about += fmt::format(",\"number\":{}", call.sequence);
    if (call.communicator != 0)
      about += fmt::format(",\"communicator\":\"{}\"", communicator_name(call.communicator));
    if (!call.shape.empty()) about += ",\"shape\":" + quoted(call.shape);
    if (!call.returned) about += ",\"returned\":false";
    trace.slice(rank, call.track, call.begin_ns, call.end_ns - call.begin_ns, name,
                ",\"cat\":\"call\",\"args\":{" + about + "}");
    if (call.waited_ns > 0 && call.last_rank >= 0) {
      trace.slice(rank, call.track, call.begin_ns, call.waited_ns, "\"waits\"",
                  fmt::format(",\"cat\":\"wait\",\"cname\":\"terrible\",\"args\":{{\"last\":\"rank {}\"}}",
                              call.last_rank));
    }
    // Several may have come first, at the same moment; with that they may be the last, too.
    if (!call.is_shared || (call.is_first && call.is_last)) continue;
    const char phase = call.is_first ? 's' : call.is_last ? 'f' : 't';
    trace.event(phase, rank, call.track, call.begin_ns, name,
                fmt::format(",\"cat\":\"collective\",\"id\":\"{:x}.{}\",\"bp\":\"e\"", call.communicator,
                            call.sequence));
  }
}

/// What the program says of itself. True: it says something.
bool add_notes(Trace& trace, const Collectives::Rank& rank) {
  bool any = false;
  int open = 0;
  NoteTail tail(rank.calls.shared_reader());
  tail.writer_is_gone();
  tail.read([&](const Note& note, std::uint64_t) {
    const std::string text = quoted(std::string(note.text, strnlen(note.text, kNoteText)));
    const std::int64_t at_ns = rank.calls.monotonic(note.at);
    // Whose beginning was overwritten has no slice to end.
    if (note.kind == NoteKind::RegionEnd && open == 0) return;
    if (note.kind == NoteKind::RegionBegin) ++open;
    if (note.kind == NoteKind::RegionEnd) --open;
    const char phase = note.kind == NoteKind::RegionBegin ? 'B'
                       : note.kind == NoteKind::RegionEnd ? 'E'
                                                          : 'i';
    if (note.kind == NoteKind::None || note.kind == NoteKind::Continued) return;
    trace.event(phase, rank.index(), kRegions, at_ns, text, phase == 'i' ? ",\"s\":\"t\"" : "");
    any = true;
  });
  return any;
}

}  // namespace

void write_trace(const std::string& path, Collectives& collectives, const Selection& selection,
                 const TraceTitle& title, std::uint64_t most) {
  Trace trace(path, collectives.begin_ns());
  trace.open(title, collectives.begin_ns() + collectives.realtime_offset_ns());
  for (Collectives::Rank& rank : collectives.ranks()) {
    if (!selection(rank.process)) continue;
    const ProcessEvidence& process = rank.process;
    const std::string gpu = process.gpu.empty() ? "" : ", " + process.gpu;
    trace.describe(rank.index(), 0, "process_name",
                   "\"name\":" + quoted(fmt::format("rank {} ({} on {}{})", process.world_rank,
                                                    process.program, process.host, gpu)));
    trace.describe(rank.index(), 0, "process_sort_index", fmt::format("\"sort_index\":{}", rank.index()));
    const std::vector<TimedCall> calls = timed_calls(collectives, rank, most, true);
    std::set<int> tracks;
    for (const TimedCall& call : calls) tracks.insert(call.track);
    add_calls(trace, rank.index(), calls);
    if (add_notes(trace, rank)) tracks.insert(kRegions);
    for (const int track : tracks)
      trace.describe(rank.index(), track, "thread_name", "\"name\":" + quoted(track_name(track)));
    for (const auto& [at_ns, bytes] : rank.reader().memory_history())
      trace.event('C', rank.index(), 0, at_ns, "\"GPU memory\"",
                  fmt::format(",\"args\":{{\"bytes\":{}}}", bytes));
  }
  if (!title.verdict.empty()) {
    trace.event('i', 0, 0, title.verdict_ns, quoted(title.verdict.substr(0, title.verdict.find('\n'))),
                ",\"s\":\"g\",\"args\":{\"report\":" + quoted(title.verdict) + "}");
  }
  trace.close();
}

}  // namespace accel
