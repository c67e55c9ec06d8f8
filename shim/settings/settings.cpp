#include "settings/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <functional>
#include <sstream>

namespace accel {
namespace {

template <class Enum>
bool choose(Enum& target, const std::string& text,
            std::initializer_list<std::pair<const char*, Enum>> choices) {
  for (const auto& [name, value] : choices) {
    if (text == name) {
      target = value;
      return true;
    }
  }
  return false;
}

bool parse_seconds(std::int64_t& target, const std::string& text) {
  double seconds = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0 && seconds < 1e9))
    return false;
  target = static_cast<std::int64_t>(seconds * 1e9);
  return true;
}

bool parse_number(std::int64_t& target, const std::string& text, std::int64_t least, std::int64_t most) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    return false;
  target = number;
  return true;
}

bool parse_ranks(LogRanks& target, const std::string& text) {
  LogRanks ranks;
  ranks.all = text == "all";
  if (!ranks.all && text != "main") {
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
      const auto dash = word.find('-');
      std::int64_t first = 0;
      std::int64_t last = 0;
      if (!parse_number(first, word.substr(0, dash), 0, INT32_MAX)) return false;
      last = first;
      if (dash != std::string::npos && !parse_number(last, word.substr(dash + 1), first, INT32_MAX))
        return false;
      ranks.ranges.emplace_back(first, last);
    }
    if (ranks.ranges.empty()) return false;
  }
  target = ranks;
  return true;
}

/// "64M,5".
bool parse_rotation(Settings& settings, const std::string& text) {
  const auto comma = text.find(',');
  std::string size = text.substr(0, comma);
  std::int64_t unit = 1;
  for (const auto& [letter, value] : {std::pair('K', 10), std::pair('M', 20), std::pair('G', 30)}) {
    if (size.empty() || size.back() != letter) continue;
    unit = std::int64_t{1} << value;
    size.pop_back();
    break;
  }
  std::int64_t number = 0;
  std::int64_t keep = settings.log_rotate_keep;
  if (!parse_number(number, size, 0, INT32_MAX)) return false;
  if (comma != std::string::npos && !parse_number(keep, text.substr(comma + 1), 1, 1000)) return false;
  settings.log_rotate_bytes = number * unit;
  settings.log_rotate_keep = static_cast<int>(keep);
  return true;
}

/// A run id becomes a directory's name.
bool parse_run_id(std::string& target, const std::string& text) {
  if (text.empty() || text.size() > 128 || text.front() == '.') return false;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '_';
    if (!plain) return false;
  }
  target = text;
  return true;
}

struct Parser {
  Variable variable;
  std::function<bool(Settings&, const std::string&)> parse;
};

/// Variable::often of what --help leaves to --help-all.
constexpr bool kSeldom = false;

const std::vector<Parser>& parsers() {
  // Never destroyed: the environment may be read at exit.
  static const auto* const all = new std::vector<Parser>{
      {{"ACCEL_CHECK", "async, sync or off", "sync: verify each collective before it runs"},
       [](Settings& s, const std::string& v) {
         return choose(s.check, v, {{"async", Check::Async}, {"sync", Check::Sync}, {"off", Check::Off}});
       }},
      {{"ACCEL_ON_ERROR", "raise, abort or report", "what to do after a verdict"},
       [](Settings& s, const std::string& v) {
         return choose(s.on_error, v,
                       {{"raise", OnError::Raise}, {"abort", OnError::Abort}, {"report", OnError::Report}});
       }},
      {{"ACCEL_TIMEOUT", "seconds (0: never)", "a rank that waits longer ends the job"},
       [](Settings& s, const std::string& v) { return parse_seconds(s.timeout_ns, v); }},
      {{"ACCEL_WARN_AFTER", "seconds (0: never)", "a rank that waits longer is worth a warning"},
       [](Settings& s, const std::string& v) { return parse_seconds(s.warn_after_ns, v); }},
      {{"ACCEL_OOM_GRACE", "seconds (0: never)",
        "a rank out of GPU memory that stands still longer ends the job", kSeldom},
       [](Settings& s, const std::string& v) { return parse_seconds(s.oom_grace_ns, v); }},
      {{"ACCEL_LOG_LEVEL", "DEBUG, INFO, WARNING, ERROR or CRITICAL", "what to print"},
       [](Settings& s, const std::string& v) {
         return choose(s.log_level, v,
                       {{"DEBUG", LogLevel::Debug},
                        {"INFO", LogLevel::Info},
                        {"WARNING", LogLevel::Warning},
                        {"ERROR", LogLevel::Error},
                        {"CRITICAL", LogLevel::Critical}});
       }},
      {{"ACCEL_LOG_FORMAT", "text or json", "json: a line for each report", kSeldom},
       [](Settings& s, const std::string& v) {
         return choose(s.log_format, v, {{"text", LogFormat::Text}, {"json", LogFormat::Json}});
       }},
      {{"ACCEL_LOG_RANKS", "main, all or a list such as 0,3-5", "whose calls and messages; default main"},
       [](Settings& s, const std::string& v) { return parse_ranks(s.log_ranks, v); }},
      {{"ACCEL_LOG_ORDER", "arrival or rank",
        "rank: for each collective the ranks one after another, when all have come", kSeldom},
       [](Settings& s, const std::string& v) {
         return choose(s.log_order, v, {{"arrival", LogOrder::Arrival}, {"rank", LogOrder::Rank}});
       }},
      {{"ACCEL_LOG_ROTATE", "SIZE or SIZE,COUNT, such as 64M,5 (0: never)",
        "a log file that grows beyond SIZE is put aside as FILE.1, and COUNT of those are kept; default 0,3",
        kSeldom},
       [](Settings& s, const std::string& v) { return parse_rotation(s, v); }},
      {{"ACCEL_RECORDS", "a number up to 67108864",
        "collective calls that a rank remembers, at 64 bytes each; default 16384, with DEBUG 131072",
        kSeldom},
       [](Settings& s, const std::string& v) { return parse_number(s.records, v, 1, 1 << 26); }},
      {{"ACCEL_LOG_FILE", "a path; %r rank, %h host, %p pid, %j run id", "where reports go; default stderr"},
       [](Settings& s, const std::string& v) {
         s.log_file = v;
         return !v.empty();
       }},
      {{"ACCEL_METRICS", "a path; %h host, %j run id",
        "a file that is kept up to date with counters of all ranks, as OpenMetrics text", kSeldom},
       [](Settings& s, const std::string& v) {
         s.metrics = v;
         return !v.empty();
       }},
      {{"ACCEL_STACKS", "native, sites, hang or off",
        "where calls come from: native stacks, Python's too, only at a hang, or not at all; default native"},
       [](Settings& s, const std::string& v) {
         return choose(s.stacks, v,
                       {{"native", Stacks::Native},
                        {"sites", Stacks::Sites},
                        {"hang", Stacks::Hang},
                        {"off", Stacks::Off}});
       }},
      {{"ACCEL_FULL_NAMES", "0 or 1", "1: names of C++ functions with all their template arguments", kSeldom},
       [](Settings& s, const std::string& v) {
         return choose(s.full_names, v, {{"0", false}, {"1", true}});
       }},
      {{"ACCEL_INTERFACE", "names or their beginnings, such as eth0,ib",
        "network interfaces that other hosts of the job reach accelrun on; default all", kSeldom},
       [](Settings& s, const std::string& v) {
         s.interfaces = v;
         return !v.empty();
       }},
      {{"ACCEL_RUN_DIR", "an absolute directory",
        "where the run's records lie; default $XDG_RUNTIME_DIR or /dev/shm"},
       [](Settings& s, const std::string& v) {
         s.run_base = v;
         return !v.empty() && v.front() == '/';
       }},
      {{"ACCEL_RUN_ID", "letters, digits, '.', '-' and '_', not starting with '.'", "name of the run",
        kSeldom},
       [](Settings& s, const std::string& v) { return parse_run_id(s.run_id, v); }},
      {{"ACCEL_DISABLE", "0 or 1", "1: pass every call through"},
       [](Settings& s, const std::string& v) {
         return choose(s.disabled, v, {{"0", false}, {"1", true}});
       }},
  };
  return *all;
}

std::string default_base() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/' && access(runtime, W_OK) == 0) return runtime;
  return "/dev/shm";
}

}  // namespace

bool LogRanks::contains(std::int32_t rank) const {
  if (all) return true;
  if (ranges.empty()) return rank <= 0;
  for (const auto& [first, last] : ranges) {
    if (rank >= first && rank <= last) return true;
  }
  return false;
}

Settings Settings::from_environment(std::vector<std::string>& complaints) {
  Settings settings;
  settings.run_base = default_base();
  const auto text = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  for (const Parser& parser : parsers()) {
    const std::string name = parser.variable.name;
    std::string value = text(parser.variable.name);
    const bool ours = !value.empty();
    // Accelerate's own switches, weaker than ours and silent where they do not fit.
    if (!ours && name == "ACCEL_CHECK" && text("ACCELERATE_DEBUG_MODE") == "1") value = "sync";
    if (!ours && name == "ACCEL_LOG_LEVEL") value = text("ACCELERATE_LOG_LEVEL");
    if (value.empty()) continue;
    Settings changed = settings;
    if (parser.parse(changed, value)) {
      settings = changed;
    } else if (ours) {
      complaints.push_back(fmt::format("{}={} is not valid: expected {}; the default is used", name, value,
                                       parser.variable.accepted));
    }
  }
  if (settings.log_level == LogLevel::Debug && text("ACCEL_RECORDS").empty()) settings.records = 131072;
  return settings;
}

const std::vector<Variable>& variables() {
  static const std::vector<Variable> all = [] {
    std::vector<Variable> result;
    for (const Parser& parser : parsers()) result.push_back(parser.variable);
    return result;
  }();
  return all;
}

bool accepts(const std::string& name, const std::string& value) {
  for (const Parser& parser : parsers()) {
    Settings scratch;
    if (name == parser.variable.name) return parser.parse(scratch, value);
  }
  return false;
}

}  // namespace accel
