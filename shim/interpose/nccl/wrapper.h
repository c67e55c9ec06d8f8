// The one wrapper behind every NCCL row of functions.def, and the groups that calls may stand in.
#pragma once
#include <vector>

#include "interpose/nccl/communicators.h"
#include "interpose/nccl/real.h"
#include "interpose/session.h"
#include "signature/agreement.h"
#include "signature/coll_config.h"
#include "signature/function.h"

namespace accel::nccl {

/// ncclResult_t; the same numbers in every version.
inline constexpr int kSuccess = 0;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kInProgress = 7;
inline bool accepted(int result) { return result == kSuccess || result == kInProgress; }

/// From the first communicator on; null before, while dormant, and in a forked child: then calls are passed
/// through.
extern std::atomic<Session*> session;
inline const Session* active() {
  const Session* now = session.load(std::memory_order_acquire);
  return now != nullptr && Process::self().recorder() != nullptr && thread_state.nested == 0 ? now : nullptr;
}

/// A call that is known and not yet recorded.
struct Pending {
  Communicator* communicator = nullptr;
  PairRecord* pair = nullptr;  ///< of a point-to-point call
  Handle stream = 0;
  Recorder::Draft draft;
  Agreement agreement;
};

/// This thread's group: its calls run, and count, together when the outermost group ends.
struct Group {
  int depth = 0;
  bool refused = false;  ///< a call in it was: then none of it runs
  std::vector<Pending> calls;
  /// Communicators that come into being at its end: where NCCL stores the handle.
  struct Creation {
    Communicator* communicator;
    Handle* handle;
  };
  std::vector<Creation> creations;
};
Group& group();

/// Records calls that are about to run together, checks them first in sync mode, runs them, and takes them
/// back if NCCL refuses.
class Launch {
 public:
  Launch(const Session& session, Pending* calls, std::size_t count);
  /// Not 0: a check has failed; nothing may run.
  int verdict() const { return verdict_; }
  void end(int result);

 private:
  const Session& session_;
  Recorder::Ticket one_;
  std::vector<Recorder::Ticket> many_;
  Pending* calls_;
  Recorder::Ticket* tickets_;
  std::size_t count_;
  int verdict_ = kSuccess;
};

/// After the call that makes a communicator has returned: it exists, or will (ncclInProgress), or does not.
void settle(Recorder& recorder, Communicator& created, const Handle* handle, int result);

/// After a verdict: what the program's next call returns; 0: there is none. Sets what ncclGetLastError says.
int standing_verdict();

template <Function function, Flow flow, bool pair, class... Roles>
Agreement agreement_of(const Call& call, Recorder::Draft& draft, Communicator& communicator) {
  constexpr bool kReduces = role::has<role::NcclOp, Roles...>;
  draft.datatype = static_cast<DatatypeId>(kNcclDatatype + (call.send.type & 0xff));
  draft.count = call.send.count;
  const NcclDatatype* type = nccl_datatype(draft.datatype);
  const std::int64_t size = type != nullptr ? type->bytes : 1;
  std::uint64_t data = 0;
  if constexpr (kReduces) {
    constexpr int kBuiltin = 5;
    const int made =
        call.op >= kBuiltin ? detail::ops.find(call.op ^ static_cast<Handle>(communicator.slot) << 32) : -1;
    draft.op = call.op < kBuiltin ? static_cast<ReduceOpId>(kNcclOp + call.op)
                                  : static_cast<ReduceOpId>(kNcclPreMulSum + (made & 0xfff));
    data = call.send.count == 0 ? 0 : mix(draft.datatype, static_cast<std::uint64_t>(call.send.count));
  } else {
    data = call.send.count == 0 ? 0 : mix(1, static_cast<std::uint64_t>(call.send.count * size));
  }
  if constexpr (pair) return {data, 0};
  constexpr Function kKind = traits(function).kind;
  const std::int32_t root = role::has<role::Root, Roles...> ? call.root : 0;
  std::uint64_t configuration = 0;
  if constexpr (role::has<role::CollConfiguration, Roles...>)
    configuration = hash_of(static_cast<const CollConfig*>(call.configuration));
  return {mix(agreed_start(kKind, root, draft.op), data), configuration,
          kReduces || data == 0 ? 0 : std::uint64_t{draft.datatype}};
}

template <Function function, Flow flow, bool pair, class... Roles>
int intercept(Real& real, const void* caller, const void* frame, Roles... arguments) {
  auto* const next = real.get<int(Roles...)>(caller);
  if (next == nullptr) [[unlikely]]
    return lacks(real.name());
  const Session* const now = active();
  if (now == nullptr) return next(arguments...);
  const DepthGuard guard(thread_state.nested);
  const std::uint16_t site = now->sites->find(caller, frame);
  if (now->sites->is_internal(site)) return next(arguments...);
  if (const int error = standing_verdict()) [[unlikely]]
    return error;
  Call call;
  (arguments.describe(call), ...);
  Communicator* const own = communicator(call.communicator);
  if (own == nullptr) return next(arguments...);

  Pending pending;
  pending.communicator = own;
  pending.draft.function = function;
  pending.draft.communicator = static_cast<std::uint16_t>(own->slot);
  pending.draft.site = site;
  pending.draft.root = pair ? call.peer : call.root;
  pending.stream = call.stream;
  pending.agreement = agreement_of<function, flow, pair, Roles...>(call, pending.draft, *own);
  if constexpr (pair) pending.pair = own->pair(*now->recorder, call.peer, flow == Flow::FromPeer);

  Group& together = group();
  if (together.depth > 0) {
    const int result = next(arguments...);
    if (accepted(result)) {
      together.calls.push_back(pending);
    } else {
      together.refused = true;
    }
    return result;
  }
  Launch launch(*now, &pending, 1);
  if (launch.verdict() != kSuccess) [[unlikely]]
    return launch.verdict();
  const int result = next(arguments...);
  launch.end(result);
  return result;
}

}  // namespace accel::nccl
