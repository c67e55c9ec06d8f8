#include "launcher/bundle.h"

#include <accel/accel.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "collect/moment.h"
#include "launcher/captured.h"
#include "launcher/command_line.h"
#include "launcher/doctor/doctor.h"
#include "launcher/failure.h"
#include "launcher/recorded_run.h"

namespace accel {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// A name whose value nobody else shall see.
bool is_secret(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const char* part : {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY",
                           "ACCESS_KEY", "PRIVATE_KEY", "API-KEY", "ACCESS-KEY"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

/// Puts x for the value behind NAME= or "NAME": " or --name=, and behind "--name", ".
void hide_values(std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    if (!is_name_character(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && is_name_character(text[at])) ++at;
    if (at - begin > 100 || !is_secret(text.substr(begin, at - begin))) continue;
    const std::size_t value = text.find_first_not_of("\"':,= \n", at);
    if (value == std::string::npos || value == at) continue;
    for (at = value;
         at < text.size() && std::string_view(" \t\n\"'\0", 6).find(text[at]) == std::string_view::npos; ++at)
      text[at] = 'x';
  }
}

}  // namespace

Scrubber::Scrubber() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  add_name(host);
  if (const passwd* user = getpwuid(geteuid())) add_name(user->pw_name);
  for (const char* variable : {"USER", "LOGNAME", "SUDO_USER"}) {
    if (const char* value = std::getenv(variable)) add_name(value);
  }
}

void Scrubber::add_name(const std::string& name) {
  // "root" and "vm" are nobody's name, and stand in other words.
  if (name.size() < 3 || name == "root" || name == "localhost") return;
  if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
}

std::string Scrubber::operator()(std::string text) const {
  for (const std::string& name : names_) {
    for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += name.size()) {
      // A whole word only.
      const bool begins = at == 0 || !is_name_character(text[at - 1]);
      const std::size_t end = at + name.size();
      if (begins && (end == text.size() || !is_name_character(text[end])))
        text.replace(at, name.size(), name.size(), 'x');
    }
  }
  hide_values(text);
  return text;
}

namespace {

/// File name and content of everything that goes in.
std::vector<std::pair<std::string, std::string>> contents(const std::string& path, bool scrub) {
  std::vector<std::pair<std::string, std::string>> files;
  Scrubber scrubber;
  doctor::Request request;
  request.json = true;
  files.emplace_back("doctor.json", doctor::text_of(doctor::examine(request), true));
  files.emplace_back("versions.txt", fmt::format("accelrun {}\n{}", ACCEL_VERSION,
                                                 run_captured({"uname", "-srvm"}, 2'000'000'000).output));
  if (!path.empty()) {
    const RecordedRun run = open_run(path);
    for (const RecordedRun::Process& process : run.processes) scrubber.add_name(process.evidence.host);
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (is_record(name) || name.ends_with(".json") || name == kMomentFile)
        files.emplace_back(name, read_file(entry.path()));
    }
  }
  std::sort(files.begin(), files.end());
  if (scrub) {
    for (auto& [name, text] : files) text = scrubber(std::move(text));
  }
  return files;
}

void write_archive(const std::vector<std::pair<std::string, std::string>>& files,
                   const std::string& archive) {
  char place[] = "/tmp/accelrun-report-XXXXXX";
  if (mkdtemp(place) == nullptr) throw Failure(ACCEL_EXIT_INTERNAL, "no directory can be made below /tmp");
  const fs::path directory = fs::path(place) / "accel-report";
  fs::create_directory(directory);
  for (const auto& [name, text] : files) std::ofstream(directory / name, std::ios::binary) << text;
  const Captured tar = run_captured({"tar", "-czf", archive, "-C", place, "accel-report"}, 60'000'000'000);
  std::error_code ignored;
  fs::remove_all(place, ignored);
  if (tar.status != 0)
    throw Failure(ACCEL_EXIT_INTERNAL, fmt::format("{} cannot be written: {}", archive,
                                                   tar.output.substr(0, tar.output.find('\n'))));
}

/// A block to paste into an issue.
std::string markdown(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string text;
  for (const auto& [name, content] : files) {
    if (is_record(name)) continue;
    text += fmt::format("<details><summary>{}</summary>\n\n```\n{}\n```\n</details>\n\n", name, content);
  }
  return text;
}

}  // namespace

int report_main(int argc, char** argv) {
  CLI::App app(
      "All that somebody else needs to understand a run, in one archive. User and host names and secrets are "
      "taken out.",
      "accelrun report");
  std::string run;
  std::string archive = "accel-report.tar.gz";
  bool as_markdown = false;
  bool show = false;
  bool keep_names = false;
  app.add_option("RUN", run,
                 "directory of a run (accelrun --keep); without it only the machine is described");
  app.add_option("-o,--output", archive, "the archive")->type_name("FILE");
  app.add_flag("--md", as_markdown, "print a block for an issue instead");
  app.add_flag("--show", show, "list what would go in");
  app.add_flag("--no-scrub", keep_names, "leave names and secrets in");
  if (int status = 0; !parse(app, argc, argv, status)) return status;
  const auto files = contents(run, !keep_names);
  if (show) {
    for (const auto& [name, text] : files) std::cout << fmt::format("{:>9} {}\n", text.size(), name);
  } else if (as_markdown) {
    std::cout << markdown(files);
  } else {
    write_archive(files, archive);
    std::cout << fmt::format(
        "{}: {} files{}\n", archive, files.size(),
        keep_names ? ", with names and secrets" : ", user and host names and secrets taken out");
  }
  return 0;
}

}  // namespace accel
