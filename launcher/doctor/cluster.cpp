#include <fmt/format.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "launcher/captured.h"
#include "launcher/doctor/checks.h"
#include "launcher/engine.h"

namespace accel::doctor {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::string own_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

bool is_here(const std::string& host) {
  const std::string own = own_name();
  return host == "localhost" || host == "127.0.0.1" || host == own || own.starts_with(host + ".");
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What a host says of itself.
struct Host {
  std::string name;
  std::string trouble;  ///< why it could not be asked
  std::string remedy;
  std::map<std::string, std::string> versions;  ///< kernel, driver, CUDA, NCCL: those that it has
  double clock_ahead = 0;                       ///< seconds, of ours
  double uncertainty = 0;                       ///< of that
};

/// A line each: name=value, or nothing behind the sign. The loader's NCCL is the one that a program without a
/// path of its own gets.
constexpr const char* kQuestion =
    "echo kernel=$(uname -r); echo clock=$(date +%s.%N); "
    "echo driver=$(sed -n 's/.*Module *\\([0-9.]*\\).*/\\1/p' /proc/driver/nvidia/version 2>/dev/null | head "
    "-1); "
    "PATH=$PATH:/sbin:/usr/sbin; "
    "library() { f=$(ldconfig -p 2>/dev/null | sed -n \"s/.*$1.* => //p\" | head -1); "
    "[ -n \"$f\" ] && readlink -f \"$f\" | sed -n 's/.*[.]so[.]\\([0-9]*[.][0-9.]*\\)$/\\1/p'; }; "
    "echo CUDA=$(library 'libcudart\\.so'); echo NCCL=$(library 'libnccl\\.so')";

/// Those of which different versions on different hosts have been seen to break jobs, with what follows.
constexpr std::pair<const char*, const char*> kSkews[] = {
    {"driver", "the same driver everywhere: NCCL and CUDA choose by it"},
    {"CUDA", "the same CUDA runtime everywhere, unless each program brings its own"},
    {"NCCL",
     "the same NCCL everywhere, unless each program brings its own: versions do not always talk to each "
     "other"},
    {"kernel", ""}};

bool resolves(const std::string& host) {
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

/// Why ssh did not get there, by what it says.
void explain_ssh(const std::string& output, bool timed_out, Host& host) {
  const auto says = [&](const char* text) { return output.find(text) != std::string::npos; };
  if (timed_out || says("timed out")) {
    host.trouble = "ssh gets no answer";
    host.remedy = "is it up, and port 22 open from here?";
  } else if (says("Host key verification failed")) {
    host.trouble = says("REMOTE HOST IDENTIFICATION HAS CHANGED") ? "ssh: its host key has changed"
                                                                  : "ssh: its host key is not known";
    host.remedy = fmt::format(
        "ssh-keyscan {0} >> ~/.ssh/known_hosts (after ssh-keygen -R {0} if it has changed)", host.name);
  } else if (says("Permission denied")) {
    host.trouble = "ssh wants a password";
    host.remedy = fmt::format("ssh-copy-id {}; mpirun cannot type one", host.name);
  } else if (says("Connection refused")) {
    host.trouble = "nobody listens to ssh there";
    host.remedy = "start sshd";
  } else {
    host.trouble = "ssh: " + output.substr(0, output.find('\n'));
    host.remedy = fmt::format("ssh -o BatchMode=yes {} true", host.name);
  }
}

Host ask(const std::string& name) {
  Host host;
  host.name = name;
  if (!resolves(name)) {
    host.trouble = "its name is not known here";
    host.remedy = "add it to /etc/hosts or DNS, or name it as the other hosts do";
    return host;
  }
  std::vector<std::string> words = {"sh", "-c", kQuestion};
  if (!is_here(name)) {
    words = {"ssh", "-o",     "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "StrictHostKeyChecking=yes",
             name,  kQuestion};
  }
  const double before = now_seconds();
  const Captured answer = run_captured(words, 8 * kSecond);
  const double after = now_seconds();
  if (answer.status != 0) {
    explain_ssh(answer.output, answer.timed_out, host);
    return host;
  }
  // A login shell may greet first.
  std::istringstream lines(answer.output);
  for (std::string word; lines >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals + 1 == word.size()) continue;
    if (word.starts_with("clock=")) {
      host.clock_ahead = std::strtod(word.c_str() + equals + 1, nullptr) - (before + after) / 2;
      host.uncertainty = (after - before) / 2;
    } else {
      host.versions[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  return host;
}

/// How this MPI is told to run one process on each host.
std::vector<std::string> one_each(Engine engine, const std::string& program, const std::string& hostfile) {
  if (engine == Engine::OpenMpi)
    return {program, "--hostfile", hostfile, "--map-by", "ppr:1:node", "hostname"};
  return {program, "-f", hostfile, "-ppn", "1", "hostname"};
}

Findings compare_with_mpirun(const std::string& hostfile, const std::vector<std::string>& hosts) {
  const std::string program = in_path("mpirun").empty() ? in_path("mpiexec") : in_path("mpirun");
  if (program.empty()) return {};
  const Engine engine = detect_engine({program});
  const std::vector<std::string> words = one_each(engine, program, hostfile);
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  const Captured answer = run_captured(words, 20 * kSecond);
  if (answer.status != 0) {
    return {{Level::Error, "mpirun",
             fmt::format(
                 "{} {}: {}", text,
                 answer.timed_out ? "takes longer than 20 s" : fmt::format("fails with {}", answer.status),
                 answer.output.substr(0, answer.output.find('\n'))),
             "make that command work first"}};
  }
  std::set<std::string> answered;
  std::istringstream lines(answer.output);
  for (std::string line; lines >> line;) answered.insert(line);
  const std::set<std::string> wanted(hosts.begin(), hosts.end());
  if (answered.size() < wanted.size()) {
    return {{Level::Error, "mpirun",
             fmt::format("{}: {} of {} hosts answer", text, answered.size(), wanted.size()),
             "a resource manager may restrict it to its own allocation; or two names are one host"}};
  }
  return {{Level::Ok, "mpirun", fmt::format("{}: all {} hosts answer", text, wanted.size()), ""}};
}

}  // namespace

std::vector<std::string> hosts_in(const std::string& text) {
  std::vector<std::string> hosts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string host;
    if (!(words >> host)) continue;
    // node:4, but not an IPv6 address
    if (std::count(host.begin(), host.end(), ':') == 1) host = host.substr(0, host.find(':'));
    if (const auto at = host.find('@'); at != std::string::npos) host = host.substr(at + 1);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

Findings check_mpi() {
  const std::string program = in_path("mpirun").empty() ? in_path("mpiexec") : in_path("mpirun");
  if (program.empty()) return {{Level::Ok, "MPI", "no mpirun or mpiexec in PATH", ""}};
  switch (detect_engine({program})) {
    case Engine::OpenMpi:
      return {
          {Level::Ok, "MPI",
           program +
               " is Open MPI's: --hostfile FILE, --map-by ppr:N:node, -x NAME=VALUE (it refuses -f and -ppn)",
           ""}};
    case Engine::Hydra:
      return {{Level::Ok, "MPI",
               program + " is MPICH's or Intel's: -f FILE, -ppn N, -genv NAME VALUE (it refuses --map-by)",
               ""}};
    default:
      return {
          {Level::Warning, "MPI", program + " is nobody's that accelrun knows", "--engine says who it is"}};
  }
}

Findings check_hosts(const std::string& hostfile) {
  std::ifstream stream(hostfile);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf()))
    return {{Level::Error, "hosts", fmt::format("{} cannot be read", hostfile), "check the path"}};
  const std::vector<std::string> hosts = hosts_in(text.str());
  if (hosts.empty())
    return {{Level::Error, "hosts", fmt::format("{} names no host", hostfile), "one name a line"}};
  const bool remote = !std::all_of(hosts.begin(), hosts.end(), is_here);
  if (remote && in_path("ssh").empty())
    return {{Level::Error, "hosts", "ssh is not installed",
             "install openssh-client; mpirun starts the other hosts through it"}};
  std::vector<std::future<Host>> asked;
  asked.reserve(hosts.size());
  for (const std::string& host : hosts) asked.push_back(std::async(std::launch::async, ask, host));
  Findings findings;
  std::vector<Host> answered;
  for (std::future<Host>& one : asked) {
    const Host host = one.get();
    if (!host.trouble.empty()) {
      findings.push_back({Level::Error, "host " + host.name, host.trouble, host.remedy});
      continue;
    }
    std::string versions;
    for (const auto& [what, version] : host.versions)
      versions += fmt::format("{}{} {}", versions.empty() ? "" : ", ", what, version);
    findings.push_back({Level::Ok, "host " + host.name,
                        (is_here(host.name) ? "is this machine; " : "ssh without a password; ") + versions,
                        ""});
    answered.push_back(host);
  }
  for (const Host& host : answered) {
    const Host& first = answered.front();
    const auto version = [](const Host& of, const char* what) {
      const auto found = of.versions.find(what);
      return found != of.versions.end() ? found->second : std::string("none");
    };
    for (const auto& [what, remedy] : kSkews) {
      // A library that the loader does not find may still come with the program; a driver does not.
      const bool both = host.versions.contains(what) && first.versions.contains(what);
      if (version(host, what) == version(first, what) || (!both && what != std::string_view("driver")))
        continue;
      findings.push_back(
          {Level::Warning, "host " + host.name,
           fmt::format("{} {} here, {} on {}", what, version(host, what), version(first, what), first.name),
           remedy});
    }
    if (std::abs(host.clock_ahead) - host.uncertainty > 1) {
      findings.push_back({Level::Warning, "host " + host.name,
                          fmt::format("its clock is {:+.1f} s off ours", host.clock_ahead),
                          "run chrony or ntpd: logs of several hosts cannot be put in order"});
    }
  }
  if (answered.size() == hosts.size()) {
    for (Finding& finding : compare_with_mpirun(hostfile, hosts)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace accel::doctor
