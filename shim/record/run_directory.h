// Where a run's files lie: BASE/accel-UID/RUN_ID, 0700 and ours, or refused.
//
//   board          the shared page (layout.h)
//   leader.lock    flock: its holder reads and judges
//   bell           FIFO: a byte in it asks the leader to look now
//   PID.record     a process's recorder file; nodeN.PID.record: a copy of one of another node
//   verdict.json   the first verdict, created once; verdict.moment: how the ranks were then
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "record/file_descriptor.h"
#include "record/layout.h"
#include "record/result.h"

namespace accel {

/// Who started this process. `text` is the same in all ranks of one job on this node, and another one in any
/// other job. From the resource manager's variables, else the process manager among our ancestors, else
/// torchrun's or other launchers' RANK and WORLD_SIZE; then `names_job`. Otherwise, of a process that uses
/// MPI: this process alone, a job of its own; of another one: the parent process, which may have started
/// other jobs too, so that it names none.
struct LauncherIdentity {
  std::string text;
  bool names_job = true;
  /// The same on all hosts of the job, too, as far as the launcher tells; else `text`.
  std::string everywhere = text;
};
LauncherIdentity launcher_identity(bool uses_mpi);

class RunDirectory {
 public:
  /// What a missing directory means for a run id that accelrun made on this host: Make it (accelrun itself),
  /// or the run has ended and only its environment survived (Stale; the error is kStaleRun).
  enum class Missing { Make, Stale };

  /// Opens `base`/accel-UID/`run_id`; other run ids' directories are made where they are missing. Refuses
  /// what belongs to somebody else or is open to others.
  static Result<RunDirectory> open(const std::string& base, const std::string& run_id,
                                   Missing missing = Missing::Stale);

  /// An existing one, wherever it lies: of a run that goes on, or that was kept.
  static Result<RunDirectory> at(const std::string& path);
  /// One that is only read: a copy may be open to others.
  static Result<RunDirectory> kept(const std::string& path);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  const std::string& run_id() const { return run_id_; }

  /// Maps the board. nullptr if that fails.
  Board* map_board() const;
  /// Asks the leader to look now instead of at its next turn. Signal-safe.
  void ring() const;
  /// The leader's end of the bell.
  FileDescriptor open_bell() const;
  /// Removes the directory and all in it.
  void remove() const;

 private:
  static Result<RunDirectory> try_open(const std::string& base, const std::string& run_id, Missing missing);

  FileDescriptor fd_;
  std::string path_;
  std::string run_id_;
};

/// Error text of RunDirectory::open for a run of accelrun's that has ended: stay dormant and silent.
inline constexpr const char* kStaleRun = "stale run";

/// Whether a run id is one of accelrun's; and of an accelrun on this host.
bool launched_by_accelrun(const std::string& run_id);
bool launched_here(const std::string& run_id);

/// The name of a recorder file of this node, or of a copy of another node's, in a run directory.
std::string record_name(std::int32_t pid);
std::string copy_name(std::uint32_t node, std::int32_t pid);
bool is_record(std::string_view name);
bool is_copy(std::string_view name);

/// A new run id for accelrun; starts with "accelrun." and this host's name.
std::string new_run_id();

/// Reserves a new file's memory, so that writing to its mapping cannot fail later. 0 or an errno. A file size
/// limit (ulimit -f) is such an error too and not a SIGXFSZ.
int reserve(int fd, std::size_t bytes);

/// This host's name, at most 63 characters.
std::string host_name();

/// Removes run directories below `base` in which no process lives and whose last change is older than
/// `older_than_seconds`: what a job that was killed whole has left behind.
void sweep_dead_runs(const std::string& base, std::int64_t older_than_seconds);

}  // namespace accel
