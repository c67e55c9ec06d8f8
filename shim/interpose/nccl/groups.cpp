// ncclGroupStart and ncclGroupEnd, and how calls that run together are recorded.
#include <algorithm>

#include "interpose/export.h"
#include "interpose/nccl/completion.h"
#include "interpose/nccl/errors.h"
#include "interpose/nccl/wrapper.h"
#include "interpose/sync_check.h"

namespace accel::nccl {

std::atomic<Session*> session{nullptr};

Group& group() {
  // A pointer, not the object: its storage must not be claimed from the loader for threads that never use
  // NCCL.
  static thread_local Group* own __attribute__((tls_model("initial-exec"))) = nullptr;
  if (own == nullptr) own = new Group;
  return *own;
}

namespace {

void put(Pending& one, const Place& where) {
  one.draft.tag = where.stream;
  one.draft.launch = where.launch;
  // Executed when the graph is launched: all ranks must mean the same by it.
  if (where.stream == kCapturedStream) [[unlikely]]
    one.agreement.agreed = mix(one.agreement.agreed, 0x6772617068);
}

/// Where each call runs; those of one group on one stream together.
void place(Recorder& recorder, Pending* calls, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Pending& one = calls[i];
    if (!traits(one.draft.function).on_stream) continue;
    const auto same = std::find_if(calls, calls + i, [&](const Pending& other) {
      return other.stream == one.stream && other.communicator == one.communicator &&
             traits(other.draft.function).on_stream;
    });
    put(one, same == calls + i ? next_place(recorder, one.stream, one.communicator->slot)
                               : Place{static_cast<std::uint16_t>(same->draft.tag), same->draft.launch});
  }
}

}  // namespace

Launch::Launch(const Session& session, Pending* calls, std::size_t count)
    : session_(session), calls_(calls), tickets_(&one_), count_(count) {
  if (count > 1) {
    many_.resize(count);
    tickets_ = many_.data();
  }
  place(*session.recorder, calls, count);
  ThreadRecord* const thread = thread_record(*session.recorder);
  for (std::size_t i = 0; i < count; ++i) {
    const Pending& one = calls[i];
    if (traits(one.draft.function).numbered) {
      tickets_[i] = session.recorder->begin_numbered(one.draft, one.agreement, thread);
    } else if (one.pair != nullptr) {
      tickets_[i] = session.recorder->begin_pair(one.draft, *one.pair, one.agreement.agreed, thread);
    } else {
      tickets_[i] = session.recorder->begin_unnumbered(one.draft, thread);
    }
  }
  for (std::size_t i = 0; i < count && attentive.load(std::memory_order_relaxed); ++i) {
    const Communicator& own = *calls[i].communicator;
    if (!traits(calls[i].draft.function).numbered) continue;
    stop_if_asked(own.key, tickets_[i].record->sequence);
    if (!session.sync) continue;
    verdict_ = verify_before({own.key, own.size}, tickets_[i].record->sequence, raise_mismatch);
    if (verdict_ == kSuccess) continue;
    for (std::size_t other = 0; other < count; ++other) Recorder::end(tickets_[other]);
    return;
  }
}

void Launch::end(int result) {
  for (std::size_t i = count_; i-- > 0;) {
    const bool numbered = traits(tickets_[i].record->function).numbered;
    if (!accepted(result) && numbered) {
      session_.recorder->take_back(tickets_[i]);
    } else {
      Recorder::end(tickets_[i]);
    }
  }
  for (std::size_t i = 0; i < count_ && accepted(result); ++i) {
    const Recorder::Draft& draft = calls_[i].draft;
    const bool again = i > 0 && calls_[i - 1].draft.tag == draft.tag;
    if (traits(draft.function).on_stream && !again)
      launched(*session_.recorder, {static_cast<std::uint16_t>(draft.tag), draft.launch});
  }
}

void settle(Recorder& recorder, Communicator& created, const Handle* handle, int result) {
  if (result == kInProgress) created.initializing.store(recorder.keep_open(created.slot));
  resolve(recorder, created, accepted(result) ? *handle : 0);
}

namespace {

/// Ends the outermost group with all that stands in it.
template <class End>
int end_group(const Session& now, Group& together, End&& really) {
  std::vector<Pending> calls = std::move(together.calls);
  const std::vector<Group::Creation> creations = std::move(together.creations);
  together.calls.clear();
  together.creations.clear();
  const bool refused = together.refused;
  together.refused = false;
  if (refused) {
    for (const auto& creation : creations) resolve(*now.recorder, *creation.communicator, 0);
    return really();
  }
  Launch launch(now, calls.data(), calls.size());
  if (launch.verdict() != kSuccess) {
    // NCCL (since 2.22) can end a group without running it.
    if (auto* drop = reinterpret_cast<int (*)(void*)>(find_real("GroupSimulateEnd", nullptr))) drop(nullptr);
    return launch.verdict();
  }
  const int result = really();
  launch.end(result);
  for (const auto& creation : creations)
    settle(*now.recorder, *creation.communicator, creation.handle, result);
  return result;
}

}  // namespace
}  // namespace accel::nccl

using namespace accel;

ACCEL_EXPORT int ncclGroupStart() {
  static constinit nccl::Real real("GroupStart");
  auto* const next = real.get<int()>(__builtin_return_address(0));
  if (next == nullptr) return nccl::lacks(real.name());
  const int result = next();
  // Before the first communicator too: its ncclCommInitRank may stand in this group.
  if (result == nccl::kSuccess && thread_state.nested == 0 &&
      library_at(__builtin_return_address(0)) != Library::Nccl)
    ++nccl::group().depth;
  return result;
}

ACCEL_EXPORT int ncclGroupEnd() {
  static constinit nccl::Real real("GroupEnd");
  const void* const caller = __builtin_return_address(0);
  auto* const next = real.get<int()>(caller);
  if (next == nullptr) return nccl::lacks(real.name());
  if (thread_state.nested != 0 || library_at(caller) == Library::Nccl) return next();
  nccl::Group& together = nccl::group();
  const bool outermost = together.depth == 1;
  if (together.depth > 0) --together.depth;
  const Session* const now = nccl::active();
  if (!outermost || now == nullptr) return next();
  const DepthGuard guard(thread_state.nested);
  return nccl::end_group(*now, together, [&] { return next(); });
}

ACCEL_EXPORT int ncclGroupSimulateEnd(void* info) {
  static constinit nccl::Real real("GroupSimulateEnd");
  const void* const caller = __builtin_return_address(0);
  auto* const next = real.get<int(void*)>(caller);
  if (next == nullptr) return nccl::lacks(real.name());
  nccl::Group& together = nccl::group();
  if (together.depth > 0 && --together.depth == 0) together.calls.clear();  // nothing of it runs
  const DepthGuard guard(thread_state.nested);
  return next(info);
}
