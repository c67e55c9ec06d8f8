#include "act/metrics_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "act/verdict_file.h"
#include "report/log.h"

namespace accel {
namespace {

constexpr std::int64_t kInterval = 1'000'000'000;

/// A label's value, as the format wants it.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

/// One metric: its description, then its samples.
class Family {
 public:
  /// Of counters `name` is without the "_total" that its samples have.
  Family(const char* name, const char* type, const char* help)
      : name_(std::strcmp(type, "counter") == 0 ? fmt::format("{}_total", name) : name),
        text_(fmt::format("# TYPE {} {}\n# HELP {} {}\n", name, type, name, help)) {}
  template <class Value>
  void add(const std::string& labels, Value value) {
    text_ += fmt::format("{}{{{}}} {}\n", name_, labels, value);
    is_empty_ = false;
  }
  std::string text() const { return is_empty_ ? "" : text_; }

 private:
  std::string name_;
  std::string text_;
  bool is_empty_ = true;
};

}  // namespace

MetricsWriter::MetricsWriter(const RunDirectory& run, const Settings& settings)
    : run_(run),
      path_(settings.metrics.empty()
                ? ""
                : expand_log_file(settings.metrics, run.run_id(), -1, getpid(), host_name())),
      observer_(run) {
  observer_.only_this_node();  // on each node somebody writes
}

void MetricsWriter::turn(bool last) {
  const std::int64_t now = monotonic_ns();
  if (path_.empty() || (!last && now < next_ns_)) return;
  next_ns_ = now + kInterval;
  if (last) observer_.rescan();
  count(observer_.observe());
  // Nobody has come yet, or the last one out has removed all records after writing what they hold.
  if (sources_.empty() || write(text()) || complained_) return;
  complained_ = true;
  log().say(LogLevel::Warning, fmt::format("metrics: cannot write {}: {}", path_, std::strerror(errno)));
}

void MetricsWriter::count(const Evidence& evidence) {
  for (std::size_t i = 0; i < evidence.processes.size(); ++i) {
    const ProcessEvidence& process = evidence.processes[i];
    std::unique_ptr<Source>& place = sources_[process.pid];
    if (!place)
      place =
          std::make_unique<Source>(observer_.shared_reader(i), static_cast<std::uint32_t>(sources_.size()));
    Source& source = *place;
    source.process = process;
    source.calls.update(process);
    if (!process.alive) source.tail.writer_is_gone();
    source.overwritten += source.tail.read([&](const CallRecord& call, std::uint64_t position) {
      if (call.function >= Function::Count_ || !source.calls.is_current(call, position)) return;
      const Arrival arrival = source.calls.arrival_of(call);
      ++source.collectives[call.function];
      source.bytes += arrival.bytes;
      const ProcessCalls::Membership& in = source.calls.membership(call);
      waits_.add(in.key, in.size, arrival);
    });
  }
}

std::string MetricsWriter::text() const {
  Family processes("accel_process", "gauge", "1 while the process lives, 0 when it is gone.");
  Family collectives("accel_collectives", "counter", "Collective calls that the rank has made.");
  Family bytes("accel_collective_bytes", "counter", "Data that those gave or got.");
  Family waited("accel_wait_seconds", "counter", "Time that the rank has waited for others in them.");
  Family overwritten("accel_overwritten_records", "counter", "Calls that came too fast to be counted.");
  Family memory("accel_gpu_memory_bytes", "gauge", "Device memory that the process holds.");
  Family peak("accel_gpu_memory_peak_bytes", "gauge", "The most that it has held.");
  Family allocations("accel_gpu_allocations", "counter", "Allocations of device memory.");
  Family failures("accel_gpu_allocation_failures", "counter", "Allocations for which there was no memory.");
  Family verdicts("accel_verdict", "gauge", "1 for what libaccel found wrong with the job.");
  const std::string run = fmt::format("run=\"{}\"", escaped(run_.run_id()));
  for (const auto& [pid, source] : sources_) {
    const ProcessEvidence& process = source->process;
    const std::string labels = fmt::format("{},rank=\"{}\"", run, process.world_rank);
    processes.add(fmt::format("{},pid=\"{}\",program=\"{}\",gpu=\"{}\"", labels, pid,
                              escaped(process.program), escaped(process.gpu)),
                  process.alive ? 1 : 0);
    for (const auto& [function, times] : source->collectives)
      collectives.add(fmt::format("{},function=\"{}\"", labels, traits(function).name), times);
    bytes.add(labels, source->bytes);
    waited.add(labels, static_cast<double>(waits_.waited_ns(source->calls.index())) / 1e9);
    overwritten.add(labels, source->overwritten);
    for (const auto& [device, held] : source->calls.reader().memory()) {
      const std::string on = fmt::format("{},device=\"{}\"", labels, device);
      memory.add(on, held.total);
      peak.add(on, held.peak);
      allocations.add(on, held.allocations);
      failures.add(on, held.failures);
    }
  }
  if (const auto verdict = read_verdict(run_))
    verdicts.add(fmt::format("{},kind=\"{}\"", run, escaped(verdict->value("verdict", ""))), 1);
  std::string text;
  for (const Family* family : {&processes, &collectives, &bytes, &waited, &overwritten, &memory, &peak,
                               &allocations, &failures, &verdicts})
    text += family->text();
  return text + "# EOF\n";
}

/// Whoever reads the file sees the old one or the new one.
bool MetricsWriter::write(const std::string& text) const {
  const std::string unfinished = fmt::format("{}.{}.new", path_, getpid());
  const FileDescriptor file(
      open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file) return false;
  const bool whole = ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (whole && rename(unfinished.c_str(), path_.c_str()) == 0) return true;
  const int error = errno;
  unlink(unfinished.c_str());
  errno = error;
  return false;
}

}  // namespace accel
