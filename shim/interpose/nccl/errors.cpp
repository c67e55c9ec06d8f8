// Errors out of NCCL's own mouth: a result code, and our report where the program asks for the last error.
#include "interpose/nccl/errors.h"

#include <mutex>

#include "act/ending.h"
#include "act/verdict_file.h"
#include "interpose/export.h"
#include "interpose/nccl/wrapper.h"

namespace accel::nccl {
namespace {

std::mutex mutex;
/// Never freed: the program may keep the pointer that ncclGetLastError gave it.
std::atomic<const std::string*> message{nullptr};

}  // namespace

int raise_mismatch(const Verdict&, const std::string& text) {
  if (Process::self().settings().on_error == OnError::Abort) {
    flush_stdio();
    end_process(Process::self().board(), exit_status(VerdictKind::Mismatch));
  }
  const std::lock_guard lock(mutex);
  message.store(new std::string(text));
  return kInvalidUsage;
}

bool tell_program() {
  const auto verdict = read_verdict(Process::self().run());
  if (!verdict) return false;
  const std::lock_guard lock(mutex);
  message.store(new std::string(sentence_of(*verdict)));
  return true;
}

int standing_verdict() {
  return message.load(std::memory_order_relaxed) != nullptr ? kInvalidUsage : kSuccess;
}

}  // namespace accel::nccl

using namespace accel;

ACCEL_EXPORT const char* ncclGetLastError(Handle comm) {
  static constinit nccl::Real real("GetLastError");
  auto* const next = real.get<const char*(Handle)>(__builtin_return_address(0));
  if (const std::string* ours = nccl::message.load()) return ours->c_str();
  return next != nullptr ? next(comm) : nullptr;
}
