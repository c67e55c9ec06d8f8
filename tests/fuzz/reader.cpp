// The reader of foreign recorder files, and the judge and the report behind it: whatever the bytes, no fault
// and no hang.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "collect/observer.h"
#include "judge/judge.h"
#include "record/recorder.h"
#include "report/report.h"

namespace {

using namespace accel;

/// A run directory with one good record, into which the fuzzer's bytes are written.
struct Place {
  Place() {
    char name[] = "/dev/shm/accel-fuzz-XXXXXX";
    base = mkdtemp(name);
    run.emplace(std::move(*RunDirectory::open(base, "fuzz")));
    Recorder& recorder = **Recorder::create(*run);
    recorder.header().world_rank = 0;
    recorder.header().world_size = 2;
    recorder.header().world_key = 7;
    recorder.header().phase = Phase::Running;
    CommunicatorRecord world{};
    world.key = 7;
    world.size = 2;
    const int slot = recorder.add_communicator(world);
    ThreadRecord* thread = recorder.claim_thread();
    for (int i = 0; i < 8; ++i) {
      Recorder::Draft draft;
      draft.function = i % 2 == 0 ? Function::Allreduce : Function::Gatherv;
      draft.communicator = static_cast<std::uint16_t>(slot);
      recorder.begin_numbered(draft, {static_cast<std::uint64_t>(i), 0}, thread);
    }
    name_of_record = accel::record_name(getpid());
    file = openat(run->fd(), name_of_record.c_str(), O_RDWR | O_CLOEXEC);
    good.resize(recorder_bytes(kCollectives));
    if (pread(file, good.data(), good.size(), 0) != static_cast<ssize_t>(good.size())) std::abort();
    other = openat(run->fd(), "1.record", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    std::atexit([] { std::system("rm -rf /dev/shm/accel-fuzz-*"); });
  }
  std::string base;
  std::string name_of_record;
  std::optional<RunDirectory> run;
  int file = -1;
  int other = -1;
  std::vector<char> good;
};

/// Two bytes of place (in words), one of length, then the bytes; again and again.
void damage(std::vector<char>& bytes, const std::uint8_t* data, std::size_t size) {
  while (size > 4) {
    const std::size_t at =
        (static_cast<std::size_t>(data[0]) << 16 | static_cast<std::size_t>(data[1]) << 8 | data[2]) * 8 %
        bytes.size();
    const std::size_t length = std::min({std::size_t{data[3]} % 64, size - 4, bytes.size() - at});
    std::memcpy(bytes.data() + at, data + 4, length);
    data += 4 + length;
    size -= 4 + length;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Place* const place = new Place;
  std::vector<char> bytes = place->good;
  damage(bytes, data, size);
  const std::size_t length = size > 0 && data[0] == 0xff ? size * 97 % bytes.size() : bytes.size();
  if (ftruncate(place->other, static_cast<off_t>(length)) != 0 ||
      pwrite(place->other, bytes.data(), length, 0) != static_cast<ssize_t>(length)) {
    return 0;
  }
  Observer observer(*place->run);
  const Evidence evidence = observer.observe();
  for (const Verdict& verdict : judge(evidence, {})) make_report(verdict, evidence, observer, 1);
  make_obituary(evidence);
  return 0;
}
