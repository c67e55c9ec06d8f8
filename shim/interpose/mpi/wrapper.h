// The one wrapper behind every row of functions.def.
#pragma once
#include "interpose/mpi/agreement.h"
#include "interpose/mpi/errors.h"
#include "interpose/real.h"
#include "interpose/session.h"
#include "interpose/sync_check.h"

namespace accel {

/// Between MPI_Init and MPI_Finalize of an MPI that we know; null otherwise: then calls are passed through.
extern std::atomic<Session*> session;

template <Function function, Flow flow, bool numbered, class... Roles>
int intercept(Real& real, const void* caller, const void* frame, Roles... arguments) {
  auto* const next = real.get<int(Roles...)>();
  if (next == nullptr) [[unlikely]]
    return lacks(real.symbol());
  const Session* const now = session.load(std::memory_order_acquire);
  if (now == nullptr || thread_state.nested != 0) return next(arguments...);

  const DepthGuard guard(thread_state.nested);
  Recorder* const recorder = now->recorder;
  const std::uint16_t site = now->sites->find(caller, frame);
  if (now->sites->is_internal(site)) return next(arguments...);
  Call call;
  (arguments.describe(call), ...);
  constexpr bool kFrees = role::has<role::FreedComm, Roles...>;
  if constexpr (kFrees) call.communicator = abi().load(call.communicator_in_memory);
  const Handle handle = abi().normalize(call.communicator);
  const CommunicatorInfo* found = communicator(handle);
  if (found == nullptr) return next(arguments...);
  // A copy where the communicator does not outlive the call.
  using Kept = std::conditional_t<kFrees || role::has<role::NewComm, Roles...>, const CommunicatorInfo,
                                  const CommunicatorInfo&>;
  Kept own = *found;

  Recorder::Draft draft;
  draft.function = function;
  draft.communicator = static_cast<std::uint16_t>(own.slot);
  draft.site = site;
  draft.root = numbered ? call.root : call.peer;
  draft.tag = call.tag;
  Recorder::Ticket ticket;
  if constexpr (numbered) {
    const Comparison comparison = compare<function, flow, Roles...>(call, own, *recorder);
    if (!comparison.comparable) [[unlikely]]
      recorder->flag_communicator(own.slot, kCommunicatorOpaque);
    draft.count = comparison.count;
    draft.datatype = comparison.datatype;
    draft.op = comparison.op;
    ticket = recorder->begin_numbered(draft, comparison.agreement, thread_record(*recorder));
    if (attentive.load(std::memory_order_relaxed)) [[unlikely]] {
      stop_if_asked(own.key, ticket.record->sequence);
      const auto raise = [&](const Verdict& verdict, const std::string& text) {
        return raise_mismatch(handle, verdict, text);
      };
      if (const int error = !now->sync || own.inter
                                ? 0
                                : verify_before({own.key, own.size}, ticket.record->sequence, raise)) {
        Recorder::end(ticket);
        return error;
      }
    }
  } else {
    if constexpr (role::has<role::Datatype, Roles...>) {
      draft.count = call.send.count;
      draft.datatype = datatype(call.send.type).id;
    }
    ticket = recorder->begin_unnumbered(draft, thread_record(*recorder));
  }

  const std::uint64_t sequence = ticket.record->sequence;
  if constexpr (kFrees) forget_communicator(*recorder, handle);
  const int result = next(arguments...);
  Recorder::end(ticket);
  if constexpr (role::has<role::NewComm, Roles...>) {
    constexpr bool kDuplicates = function == Function::Comm_dup || function == Function::Comm_dup_with_info ||
                                 function == Function::Comm_idup;
    const Handle created = result == 0 ? abi().load(call.new_communicator) : 0;
    if constexpr (kDuplicates) {
      adopt_duplicate(*recorder, own, sequence, created);
    } else {
      adopt_communicator(*recorder, own, sequence, call.tag, created);
    }
  }
  return result;
}

}  // namespace accel
