#include "settings/settings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <functional>

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
        "a rank out of GPU memory that stands still longer ends the job"},
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
      {{"ACCEL_LOG_FORMAT", "text or json", "json: a line for each report"},
       [](Settings& s, const std::string& v) {
         return choose(s.log_format, v, {{"text", LogFormat::Text}, {"json", LogFormat::Json}});
       }},
      {{"ACCEL_LOG_FILE", "a path; %r rank, %h host, %p pid, %j run id", "where reports go; default stderr"},
       [](Settings& s, const std::string& v) {
         s.log_file = v;
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
      {{"ACCEL_FULL_NAMES", "0 or 1", "1: names of C++ functions with all their template arguments"},
       [](Settings& s, const std::string& v) {
         return choose(s.full_names, v, {{"0", false}, {"1", true}});
       }},
      {{"ACCEL_RUN_DIR", "an absolute directory",
        "where the run's records lie; default $XDG_RUNTIME_DIR or /dev/shm"},
       [](Settings& s, const std::string& v) {
         s.run_base = v;
         return !v.empty() && v.front() == '/';
       }},
      {{"ACCEL_RUN_ID", "letters, digits, '.', '-' and '_', not starting with '.'", "name of the run"},
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
