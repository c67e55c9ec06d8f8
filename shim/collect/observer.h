// Reads all processes of a run on this node: their recorder files and whether they live.
#pragma once
#include <poll.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collect/moment.h"
#include "record/evidence.h"
#include "record/reader.h"
#include "record/run_directory.h"

namespace accel {

class Observer {
 public:
  explicit Observer(const RunDirectory& run) : run_(run) {}

  /// Nobody is about to write a file: one that cannot be read is named at once.
  void expect_whole_files() { patient_ = false; }

  /// Leaves out what happens on other nodes.
  void only_this_node() { copies_ = false; }
  /// A copy of another node's process that lives counts only if it was made since then: what it says of what
  /// a process has not done yet may be out of date. 0: all count.
  void expect_copies_since(std::int64_t since_ns) { copies_since_ns_ = since_ns; }

  /// Looks at a run that is gone as it was then.
  void go_back_to(Moment moment) { moment_ = std::move(moment); }

  /// What is known now. Costs a few system calls a process and reads new files' names once in a while.
  Evidence observe();

  /// Until the next observe(): the reader of a process in that evidence.
  const RecordReader& reader(std::size_t process) const { return *current_[process]; }

  std::shared_ptr<const RecordReader> shared_reader(std::size_t process) const { return current_[process]; }

  /// As if that evidence of earlier had been observed just now. False: some of its files are not kept any
  /// more.
  bool recall(const Evidence& evidence);

  /// Looks for new recorder files at the next observe(), not only when it is time.
  void rescan() { next_scan_ns_ = 0; }

  /// Files that are no readable record, once each: their names with the reason.
  std::vector<std::string> take_complaints();

  /// Adds what becomes readable when a process of the run dies.
  void add_pollfds(std::vector<pollfd>& waiting) const;

 private:
  struct Process {
    std::shared_ptr<RecordReader> reader;
    bool copy = false;
    FileDescriptor pidfd;
    bool alive = true;
    std::int64_t gone_since_ns = 0;
    std::int32_t exit_code = 0;  ///< as wait() reports it, if the kernel told
    bool exit_code_known = false;
  };

  void scan(std::int64_t now_ns);
  void follow(Process& process) const;
  void check_liveness(std::int64_t now_ns);
  static void confirm_death(Process& process, std::int64_t now_ns);
  static void add_departure(const Process& process, ProcessEvidence& evidence);
  static void add_status(const CopyStatus& status, ProcessEvidence& evidence);
  bool is_out_of_date(const Process& process) const;
  static bool no_other_thread(const Process& process, const ProcessEvidence& evidence);

  const RunDirectory& run_;
  std::optional<Moment> moment_;
  bool patient_ = true;
  bool copies_ = true;
  std::int64_t copies_since_ns_ = 0;
  std::map<std::string, Process> processes_;
  std::map<std::string, int> unreadable_;  ///< attempts so far
  std::vector<std::string> complaints_;
  std::vector<std::shared_ptr<RecordReader>> current_;
  std::int64_t next_scan_ns_ = 0;
};

}  // namespace accel
