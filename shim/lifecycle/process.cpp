#include "lifecycle/process.h"

#include <accel/accel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "act/ending.h"
#include "act/run_writers.h"
#include "act/watch.h"
#include "judge/members.h"
#include "lifecycle/agent.h"
#include "lifecycle/launcher_rank.h"
#include "lifecycle/python.h"
#include "lifecycle/python_api.h"
#include "lifecycle/python_sites.h"
#include "lifecycle/signals.h"
#include "lifecycle/stop_point.h"
#include "lifecycle/unwind.h"
#include "nodes/meeting.h"
#include "record/base_name.h"
#include "record/futex.h"
#include "report/log.h"

namespace accel {
namespace {

/// How long an exit without MPI_Finalize is held up while others of the job go on.
constexpr std::int64_t kLinger = 500'000'000;

}  // namespace

Process& Process::self() {
  // Never destroyed: threads of the application may still call while static destructors run.
  static Process* const instance = new Process;
  return *instance;
}

bool Process::start(std::uint32_t library) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static bool tried = false;
  if (recorder() != nullptr || std::exchange(tried, true)) return recorder() != nullptr;
  std::vector<std::string> complaints;
  settings_ = Settings::from_environment(complaints);
  if (settings_.disabled) return false;
  const LauncherIdentity identity = launcher_identity(library == kUsesMpi);
  launcher_names_job_ = identity.names_job;
  const bool named = !settings_.run_id.empty();
  const std::string run_id = named ? settings_.run_id : identity.text;
  log().configure(settings_, run_id, -1);
  for (const std::string& complaint : complaints) log().say(LogLevel::Warning, complaint);

  auto run = RunDirectory::open(settings_.run_base, run_id);
  if (!run) {
    if (run.error != kStaleRun) log().say(LogLevel::Warning, run.error + "; the job goes on unobserved");
    return false;
  }
  run_.emplace(std::move(*run));
  owns_run_ = !named;
  board_ = run_->map_board();
  auto recorder = board_ != nullptr ? Recorder::create(*run_, static_cast<std::size_t>(settings_.records))
                                    : Result<Recorder*>::failure("no room in " + run_->path());
  if (!recorder) {
    log().say(LogLevel::Warning, recorder.error + "; the job goes on unobserved");
    return false;
  }
  // Who started us tells the worlds apart. All ranks of a world derive the same key without a
  // message, so that ranks that do not have us preloaded are not disturbed.
  const std::uint64_t salt = identity.names_job ? 1 : static_cast<std::uint64_t>(getpid());
  world_key_ = mix(mix_text(0, identity.everywhere.c_str()), salt) | 1;
  (*recorder)->header().world_key = world_key_;
  if (settings_.log_level == LogLevel::Debug) (*recorder)->measure_durations();
  attentive.store(settings_.check == Check::Sync);
  if (settings_.stacks != Stacks::Off) load_unwinder();
  const bool sites = settings_.stacks == Stacks::Native || settings_.stacks == Stacks::Sites;
  sites_.attach(&(*recorder)->file(), sites ? unwind : nullptr,
                settings_.stacks == Stacks::Sites ? &python_sites() : nullptr);
  note_application_handlers();
  static const int registered = pthread_atfork(nullptr, nullptr, forget_in_child);
  (void)registered;
  recorder_.store(*recorder, std::memory_order_release);
  return true;
}

void Process::meet(std::uint64_t key) {
  if (launcher_names_job_) return;
  world_key_ = key;
  recorder()->header().world_key = key;
  launcher_names_job_ = true;
}

void Process::join(int world_rank, int world_size, std::uint32_t library) {
  RecorderHeader& header = recorder()->header();
  header.world_size = world_size;
  header.world_rank = world_rank;
  header.libraries |= library;
  header.phase = Phase::Running;
  board_->leaving.store(0);
  header.python = has_python() ? 1 : 0;
  note_main_thread();
  // A process alone takes none of the few places.
  World* world = world_size > 1 || library == kUsesMpi ? board_->world(world_key_) : nullptr;
  if (world != nullptr) {
    if (std::exchange(member_of_, world_key_) != world_key_) world->members.fetch_add(1);
    if (library == kUsesMpi) world->joined.fetch_add(1);
  }
  log().configure(settings_, run_->run_id(), world_rank);
  const std::string born =
      fmt::format("process {} on {} is rank {} of {}", getpid(), header.host, world_rank, world_size);
  recorder()->note(NoteKind::Event, static_cast<std::uint8_t>(LogLevel::Info), 0, 0, born.c_str());
  install_signal_handlers();
  start_agent();
}

void Process::introduce(int rank, int size, std::uint32_t library) {
  RecorderHeader& header = recorder()->header();
  const bool known = header.world_rank >= 0;
  const bool knows_least = library == kUsesCuda || library == 0;
  const std::uint32_t before = std::exchange(header.libraries, header.libraries | library);
  if (known && (knows_least || (before & (kUsesMpi | kUsesNccl)) != 0)) return;
  const LauncherRank told = launcher_rank();
  if (told.rank >= 0) return join(told.rank, told.size, library);
  join(rank, size, library);
}

int Process::ordered_end() const {
  const Recorder* recorder = this->recorder();
  if (board_ == nullptr || recorder == nullptr || board_->end_world.load() != world_key_) return 0;
  const std::uint32_t status = board_->end_status.load();
  // A rank that crashes is to die by its signal, as without us.
  if ((status == ACCEL_EXIT_CRASH || status == ACCEL_EXIT_OUT_OF_MEMORY) &&
      recorder->header().fatal_signal != 0)
    return 0;
  return status >= 80 && status <= 85 ? static_cast<int>(status) : 0;
}

void Process::wait_for_leader(std::int64_t timeout_ns) const {
  wait_for_look(*run_, *board_, timeout_ns);
  const int status = ordered_end();
  if (status == 0) return;
  constexpr std::int64_t kPatience = 1'000'000'000;
  std::atomic<std::uint32_t> never{0};
  futex_wait(never, 0, kPatience);
  end_process(*board_, status);
}

bool Process::others_live() const {
  Observer observer(*run_);
  for (const ProcessEvidence& process : observer.observe().processes) {
    const bool other = process.world_key == world_key_ && process.pid != getpid();
    if (other && !process.has_left()) return true;
  }
  return false;
}

/// Until all others of the world leave too, or the leader has a verdict: that it takes a moment to see who
/// waits for us costs a rank that leaves improperly that moment.
void Process::linger() {
  World* world = board_->world(world_key_);
  if (world == nullptr) return;
  world->finalizing.fetch_add(1);
  const auto others_go_on = [&] { return world->finalizing.load() < world->joined.load(); };
  const std::int64_t begun = monotonic_ns();
  for (std::int64_t next_ring = begun; others_go_on() && monotonic_ns() - begun < kLinger; usleep(200)) {
    if (monotonic_ns() < next_ring) continue;
    next_ring = monotonic_ns() + kLinger / 10;
    run_->ring();
  }
  // Those of other hosts are not counted here.
  const bool elsewhere = recorder()->header().world_size > static_cast<std::int32_t>(world->joined.load());
  if (others_go_on() || elsewhere) wait_for_leader(elsewhere ? kLinger : kLinger / 10);
}

/// Without MPI nobody says goodbye, so that an exit is the usual end; but if others have called what we have
/// not, they wait for us in vain, and their launcher may end them before anybody can say so.
void Process::answer_those_who_wait() {
  Observer observer(*run_);
  const Evidence evidence = observer.observe();
  bool somebody_waits = false;
  for (const auto& [key, members] : members_of(evidence)) {
    std::uint64_t own = UINT64_MAX;
    std::uint64_t most = 0;
    for (const Member& member : members.seen) {
      const ProcessEvidence& process = evidence.processes[member.process];
      const std::uint64_t sequence = member.communicator.record.sequence;
      if (process.pid == getpid()) own = sequence;
      if (process.pid != getpid() && process.alive) most = std::max(most, sequence);
    }
    somebody_waits = somebody_waits || (own != UINT64_MAX && most > own);
  }
  const std::int64_t begun = monotonic_ns();
  while (somebody_waits && monotonic_ns() - begun < kLinger) {
    wait_for_leader(kLinger / 10);
    usleep(1000);
  }
}

/// What the process has had of the GPUs' memory.
void Process::sum_up_memory() const {
  const RecorderFile& file = recorder()->file();
  for (std::size_t device = 0; device < kMaxDevices; ++device) {
    const DeviceMemory& memory = file.memory[device];
    if (memory.allocations == 0 && memory.failures == 0) continue;
    const auto held = [&](MemoryKind kind) { return memory.current[static_cast<std::size_t>(kind)]; };
    log().say(LogLevel::Info,
              fmt::format("GPU {}: {} allocations, {} frees, {} failures; at most {} bytes of device memory, "
                          "{} at the end; "
                          "besides, {} bytes managed and {} pinned",
                          device, memory.allocations, memory.frees, memory.failures, memory.peak,
                          memory.total, held(MemoryKind::Managed), held(MemoryKind::Pinned)));
  }
}

namespace {

/// kUses* by what a loaded object is; 0: none of them.
std::uint32_t library_of(std::string_view path) {
  constexpr std::pair<std::string_view, std::uint32_t> kLibraries[] = {{"libmpi.so", kUsesMpi},
                                                                       {"libmpich.so", kUsesMpi},
                                                                       {"libnccl.so", kUsesNccl},
                                                                       {"libcuda.so", kUsesCuda}};
  for (const auto& [name, library] : kLibraries) {
    if (base_name(path).starts_with(name)) return library;
  }
  return 0;
}

}  // namespace

void Process::say_what_was_not_seen() const {
  std::vector<std::string> loaded;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* result) {
        if (library_of(object->dlpi_name) != 0)
          static_cast<std::vector<std::string>*>(result)->emplace_back(object->dlpi_name);
        return 0;
      },
      &loaded);
  if (loaded.empty()) return;
  std::vector<std::string> ignored;
  const Settings settings = Settings::from_environment(ignored);
  if (settings.disabled) return;
  if (recorder() == nullptr) log().configure(settings, settings.run_id, -1);
  const std::uint32_t seen = (recorder() != nullptr ? recorder()->header().libraries : 0) | reached_.load();
  for (const std::string& path : loaded) {
    if ((library_of(path) & seen) != 0) continue;
    log().say(
        LogLevel::Info,
        fmt::format("{} is loaded, but no call to it was seen: the program has made none that we observe, "
                    "or it was opened with RTLD_DEEPBIND (accelrun --audit sees that)",
                    path));
  }
}

void Process::leave(int status) {
  Recorder* recorder = this->recorder();
  // In a vfork child the memory is the parent's but the pid is not.
  if (recorder == nullptr || recorder->header().pid != getpid() || left_.exchange(true)) return;
  RecorderHeader& header = recorder->header();
  sum_up_memory();
  const bool improper = header.phase == Phase::Running || header.phase == Phase::InFinalize;
  if (improper) {
    header.exit_status = status;
    header.phase = Phase::Exiting;
    if ((header.libraries & kUsesMpi) != 0) {
      linger();
    } else {
      // What has failed is to be said before our agent is gone, and before others are ended for it.
      if (status != 0 && (header.episodes != 0 || others_live())) wait_for_leader(kLinger);
      answer_those_who_wait();
    }
  }
  stop_agent();
  if (others_live()) return;
  finish_log();
  take_leave();
  if (!owns_run_) return;
  if (header.libraries != kUsesMpi) look_back(status);
  if (!has_verdict()) run_->remove();
}

/// The last one out writes what is left, unless accelrun does.
void Process::finish_log() const {
  if (launched_here(run_->run_id())) return;
  constexpr std::int64_t kPatience = 60'000'000'000;
  if (RunWriters::wanted(*board_, settings_)) RunWriters(*run_, *board_, settings_).finish(kPatience);
}

std::optional<Invitation> Process::invitation_of_launcher() const {
  const std::string& id = run_->run_id();
  if (!launched_by_accelrun(id) || launched_here(id)) return std::nullopt;
  return Invitation::from_environment(id);
}

bool Process::is_invited() { return std::getenv("ACCEL_COORDINATOR") != nullptr; }

/// The last one out of a node lets whoever judges, on another one, have what it has not seen yet, and removes
/// what accelrun there cannot.
void Process::take_leave() const {
  constexpr std::int64_t kPatience = 2'000'000'000;
  const auto launcher = invitation_of_launcher();
  const auto invitation = launcher ? launcher : invitation_of(*board_);
  // Two may find at the same moment that all others have left.
  if (!invitation || board_->leaving.exchange(1) != 0) return;
  say_goodbye(*run_, *board_, *invitation, kPatience);
  if (launcher) run_->remove();
}

bool Process::has_verdict() const {
  return faccessat(run_->fd(), "verdict.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/// Without MPI_Finalize nothing holds ranks together at the end: a mismatch that nobody hangs in may not have
/// been seen yet. The last one out looks at all that have gone before.
void Process::look_back(int status) {
  const int ordered = Watch(*run_, *board_, settings_).look_back();
  if (ordered == 0 || settings_.on_error == OnError::Report) return;
  // A program that Check::Sync has given an error to answers it as it likes.
  if (status != 0 && settings_.check == Check::Sync) return;
  // Somebody else may be about to report it, whom a launcher ends when it sees us fail.
  const std::int64_t begun = monotonic_ns();
  while (!has_verdict() && monotonic_ns() - begun < kLinger) usleep(200);
  flush_stdio();
  syscall(SYS_exit_group, ordered);
}

void Process::forget_in_child() {
  Process& process = self();
  process.recorder_.store(nullptr, std::memory_order_release);
  process.board_ = nullptr;
}

namespace {

/// Registered before everybody else's handlers and so run after them: a program may call MPI_Finalize in one.
__attribute__((constructor)) void watch_exit() {
  on_exit(
      [](int status, void*) {
        Process::self().say_what_was_not_seen();
        Process::self().leave(status);
      },
      nullptr);
}

}  // namespace
}  // namespace accel
