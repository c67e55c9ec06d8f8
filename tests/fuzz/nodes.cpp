// What another node sends: its frames, the parts of recorder files in them, and the judge behind those.
// Whatever the bytes, no fault and no hang.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "collect/observer.h"
#include "judge/judge.h"
#include "nodes/frames.h"
#include "nodes/record_copies.h"
#include "nodes/record_source.h"
#include "record/recorder.h"
#include "report/report.h"

namespace {

using namespace accel;

/// What an honest node would have sent, and where it goes to.
struct Place {
  Place() {
    char name[] = "/dev/shm/accel-fuzz-XXXXXX";
    const std::string base = mkdtemp(name);
    const RunDirectory there = std::move(*RunDirectory::open(base, "there"));
    here.emplace(std::move(*RunDirectory::open(base, "here")));
    Recorder& recorder = **Recorder::create(there);
    recorder.header().world_size = 2;
    recorder.header().world_rank = 0;
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
    RecordSource source(there.fd(), record_name(getpid()));
    std::string header_page;
    source.read(true, header_page, [&](std::uint64_t offset, std::string_view bytes) {
      good += encoded(FrameKind::Chunk, chunk_body(1, offset, bytes));
    });
    // As if it were process 1 there.
    const std::int32_t pid = 1;
    std::memcpy(header_page.data() + offsetof(RecorderHeader, pid), &pid, sizeof pid);
    CopyStatus status{};
    status.now = ClockPair::now();
    status.at_ns = status.now.monotonic_ns;
    status.alive = 1;
    good += encoded(FrameKind::Process, process_body(1, status, header_page));
    std::atexit([] { std::system("rm -rf /dev/shm/accel-fuzz-*"); });
  }
  std::optional<RunDirectory> here;
  std::string good;
};

/// Three bytes of place, one of length, then the bytes; again and again.
void damage(std::string& bytes, const std::uint8_t* data, std::size_t size) {
  while (size > 4) {
    const std::size_t at =
        (static_cast<std::size_t>(data[0]) << 16 | static_cast<std::size_t>(data[1]) << 8 | data[2]) %
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
  std::string bytes = place->good;
  damage(bytes, data, size);
  if (size > 0 && data[0] == 0xff) bytes.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameParser parser(kLongestFrame);
  RecordCopies copies(*place->here, 1);
  const std::size_t piece = size > 1 ? 1 + data[1] * 97U : 4096;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    parser.add(std::string_view(bytes).substr(at, piece));
    while (const auto frame = parser.next()) copies.take(*frame);
  }
  copies.show(12345);
  copies.lose(0, 1);
  Observer observer(*place->here);
  const Evidence evidence = observer.observe();
  for (const Verdict& verdict : judge(evidence, {})) make_report(verdict, evidence, observer, 1);
  make_obituary(evidence);
  return 0;
}
