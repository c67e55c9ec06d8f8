// synthetic_run DIRECTORY RANKS CALLS: a run's records as RANKS processes would have left them that made
// CALLS collectives each, for measuring what reads records. Rank 1 of every 64 comes late to every second
// call.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <memory>

#include "record/file_io.h"
#include "record/layout.h"
#include "record/run_directory.h"

namespace {

using namespace accel;

constexpr std::uint64_t kTicksPerMicrosecond = 2000;
constexpr std::uint64_t kCallTicks = 500 * kTicksPerMicrosecond;
constexpr std::uint64_t kLateTicks = 80 * kTicksPerMicrosecond;
constexpr Function kFunctions[] = {Function::Allreduce, Function::Allreduce, Function::Bcast,
                                   Function::Allreduce, Function::Allgather, Function::Barrier,
                                   Function::Allreduce, Function::Reduce};

DatatypeId floats() {
  for (std::size_t i = 1; i < std::size(kDatatypes); ++i) {
    if (kDatatypes[i].signature.only == BasicType::Float32) return static_cast<DatatypeId>(i);
  }
  return 0;
}

void describe(RecorderHeader& header, int rank, int ranks, std::uint64_t calls, std::uint64_t capacity) {
  header.magic = kRecorderMagic;
  header.version = kLayoutVersion;
  header.bytes = sizeof(RecorderFile);
  header.pid = 100'000'000 + rank;  // no kernel gives such a number
  header.uid = getuid();
  header.start_time = 1;
  header.world_key = 7;
  header.world_rank = rank;
  header.world_size = ranks;
  header.begin = {1'000'000'000, 1'000'000'000};
  const std::uint64_t end = (calls + 1) * kCallTicks;
  header.latest = {header.begin.ticks + end,
                   header.begin.monotonic_ns + static_cast<std::int64_t>(end * 1000 / kTicksPerMicrosecond)};
  header.begin_realtime_ns = 1'700'000'000'000'000'000;
  header.phase = Phase::Finalized;
  header.exit_status = -1;
  header.thread_level = 0;
  header.positions[0] = calls;
  header.collectives = capacity;
  header.communicators = 1;
  header.libraries = kUsesMpi;
  std::strcpy(header.host, fmt::format("node-{}", rank / 8).c_str());
  std::strcpy(header.program, "trainer");
  std::strcpy(header.library, "Open MPI v4.1.4");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fputs("synthetic_run DIRECTORY RANKS CALLS\n", stderr), 64;
  const int ranks = std::stoi(argv[2]);
  const std::uint64_t calls = std::stoull(argv[3]);
  const std::uint64_t capacity = std::bit_ceil(std::max<std::uint64_t>(calls, kCollectives));
  mkdir(argv[1], 0700);
  const std::size_t bytes = recorder_bytes(capacity);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::unique_ptr<RecorderFile, decltype(&free)> file(static_cast<RecorderFile*>(calloc(bytes, 1)),
                                                              &free);
    describe(file->header, rank, ranks, calls, capacity);
    CommunicatorRecord& world = file->communicators[0];
    world.stamp = 2;
    world.flags = kCommunicatorWorld;
    world.key = 7;
    world.rank = rank;
    world.size = ranks;
    world.sequence = calls;
    world.position = calls - 1;
    std::uint64_t noise = static_cast<std::uint64_t>(rank) * 977 + 1;
    for (std::uint64_t i = 0; i < calls; ++i) {
      noise = noise * 6364136223846793005U + 1442695040888963407U;
      CallRecord& call = file->collectives()[i];
      call.stamp = 2;
      call.function = kFunctions[i % std::size(kFunctions)];
      call.sequence = i + 1;
      call.started = file->header.begin.ticks + i * kCallTicks + (noise >> 48);
      if (rank % 64 == 1 && i % 2 == 0) call.started += kLateTicks;
      call.count = 1024;
      call.root = 0;
      call.returned = 1;
      call.datatype = floats();
    }
    const std::string name = fmt::format("{}/{}", argv[1], accel::record_name(file->header.pid));
    const int target = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!accel::write_at(target, file.get(), bytes, 0)) return perror(name.c_str()), 1;
    close(target);
  }
  return 0;
}
