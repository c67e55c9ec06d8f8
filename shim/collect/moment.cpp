#include "collect/moment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "record/file_descriptor.h"

namespace accel {
namespace {

constexpr int kVersion = 2;

}  // namespace

Moment Moment::of(const Evidence& evidence, const Patience& patience, std::uint32_t stack_request) {
  Moment moment;
  moment.now = ClockPair::now();
  moment.evidence_ns = evidence.now_ns;
  moment.patience = patience;
  moment.stack_request = stack_request;
  for (const ProcessEvidence& process : evidence.processes) {
    moment.processes.push_back({process.file, process.alive, process.phase, process.exit_status,
                                process.signal, process.signal_inferred, process.terminated,
                                process.no_other_thread, process.gone_since_ns});
  }
  return moment;
}

std::string Moment::text() const {
  std::string text = fmt::format(
      "accel-moment {} ticks {} monotonic {} evidence {} stacks {} timeout {} warn {} oom-grace {} "
      "not-before {} ending {}\n",
      kVersion, now.ticks, now.monotonic_ns, evidence_ns, stack_request, patience.timeout_ns,
      patience.warn_after_ns, patience.oom_grace_ns, patience.not_before_ns, patience.ending ? 1 : 0);
  for (const Process& one : processes) {
    text += fmt::format(
        "process {} alive {} phase {} exit {} signal {} inferred {} terminated {} alone {} gone {}\n",
        one.file, one.alive ? 1 : 0, static_cast<std::uint32_t>(one.phase), one.exit_status, one.signal,
        one.signal_inferred ? 1 : 0, one.terminated ? 1 : 0, one.no_other_thread ? 1 : 0, one.gone_since_ns);
  }
  return text;
}

std::optional<Moment> Moment::parse(const std::string& text) {
  std::istringstream stream(text);
  const auto number = [&](const char* name, auto& value) {
    std::string word;
    return static_cast<bool>(stream >> word >> value) && word == name;
  };
  Moment moment;
  int version = 0;
  const bool head =
      number("accel-moment", version) && version == kVersion && number("ticks", moment.now.ticks) &&
      number("monotonic", moment.now.monotonic_ns) && number("evidence", moment.evidence_ns) &&
      number("stacks", moment.stack_request) && number("timeout", moment.patience.timeout_ns) &&
      number("warn", moment.patience.warn_after_ns) && number("oom-grace", moment.patience.oom_grace_ns) &&
      number("not-before", moment.patience.not_before_ns) && number("ending", moment.patience.ending);
  if (!head) return std::nullopt;
  for (Process one; number("process", one.file);) {
    std::uint32_t phase = 0;
    const bool whole = number("alive", one.alive) && number("phase", phase) &&
                       number("exit", one.exit_status) && number("signal", one.signal) &&
                       number("inferred", one.signal_inferred) && number("terminated", one.terminated) &&
                       number("alone", one.no_other_thread) && number("gone", one.gone_since_ns);
    if (!whole) return std::nullopt;
    one.phase = static_cast<Phase>(phase);
    moment.processes.push_back(one);
  }
  return moment;
}

std::optional<Moment> Moment::read(int directory) {
  const FileDescriptor file(openat(directory, kMomentFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string text;
  char chunk[4096];
  for (ssize_t got; (got = ::read(file.get(), chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<std::size_t>(got));
  return parse(text);
}

bool Moment::restore(ProcessEvidence& process) const {
  const auto before = std::find_if(processes.begin(), processes.end(),
                                   [&](const Process& one) { return one.file == process.file; });
  if (before == processes.end()) return false;
  process.alive = before->alive;
  process.phase = before->phase;
  process.exit_status = before->exit_status;
  process.signal = before->signal;
  process.signal_inferred = before->signal_inferred;
  process.terminated = before->terminated;
  process.no_other_thread = before->no_other_thread;
  process.gone_since_ns = before->gone_since_ns;
  return true;
}

}  // namespace accel
