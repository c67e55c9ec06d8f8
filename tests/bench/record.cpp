// The record alone, without any MPI: what a call costs the thread that makes it.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "record/call_sites.h"
#include "record/recorder.h"

namespace accel {
namespace {

struct Setup {
  Setup() : run(std::move(*RunDirectory::open("/dev/shm", "bench-" + std::to_string(getpid())))) {
    recorder = *Recorder::create(run);
    CommunicatorRecord communicator{};
    communicator.key = 7;
    communicator.size = 2;
    slot = static_cast<std::uint16_t>(recorder->add_communicator(communicator));
    thread = recorder->claim_thread();
    sites.attach(&recorder->file(), nullptr);
  }
  ~Setup() { run.remove(); }
  RunDirectory run;
  Recorder* recorder;
  std::uint16_t slot;
  ThreadRecord* thread;
  CallSites sites;
};

void record_a_collective(benchmark::State& state) {
  Setup setup;
  Recorder::Draft draft;
  draft.function = Function::Allreduce;
  draft.communicator = setup.slot;
  for (auto _ : state) {
    draft.site = setup.sites.find(&state, __builtin_frame_address(0));
    const std::uint64_t agreed =
        mix(agreed_start(Function::Allreduce, 0, 3), block_hash(TypeSignature::of(BasicType::Float64), 1));
    Recorder::end(setup.recorder->begin_numbered(draft, {agreed, 0}, setup.thread));
  }
}
BENCHMARK(record_a_collective);

void record_a_message(benchmark::State& state) {
  Setup setup;
  Recorder::Draft draft;
  draft.function = Function::Send;
  for (auto _ : state) Recorder::end(setup.recorder->begin_unnumbered(draft, setup.thread));
}
BENCHMARK(record_a_message);

void two_time_stamps(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(ticks_now());
    benchmark::DoNotOptimize(ticks_now());
  }
}
BENCHMARK(two_time_stamps);

void block_of_a_derived_type(benchmark::State& state) {
  const TypeSignature mixed =
      concat(TypeSignature::of(BasicType::Float64), TypeSignature::of(BasicType::Int32));
  for (auto _ : state) benchmark::DoNotOptimize(block_hash(mixed, 1000));
}
BENCHMARK(block_of_a_derived_type);

}  // namespace
}  // namespace accel

BENCHMARK_MAIN();
