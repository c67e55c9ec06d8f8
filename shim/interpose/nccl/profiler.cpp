// The way to an NCCL that no symbol leads to (linked in statically, loaded with RTLD_DEEPBIND): we are its
// profiler plugin. It tells of each communicator and each call as they are made, though not of reduction ops;
// where our wrappers see the calls anyway, the plugin switches itself off.
#include "interpose/nccl/profiler.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "interpose/export.h"
#include "interpose/nccl/communicators.h"
#include "interpose/nccl/completion.h"
#include "interpose/nccl/observe.h"
#include "interpose/nccl/profiler_abi.h"
#include "interpose/nccl/real.h"
#include "interpose/session.h"
#include "report/log.h"
#include "signature/agreement.h"

namespace accel::nccl {
namespace {

constexpr int kSuccess = 0;
/// Where there is nothing to say about the stream: the work may be done already.
constexpr Place kNowhere{kUntrackedStream, 0};
constexpr const char* kVariable = "NCCL_PROFILER_PLUGIN";

/// What NCCL passes back to us with each event.
struct Context {
  Communicator* communicator = nullptr;  ///< nullptr: nothing is wanted
  Place kernel = kNowhere;               ///< the latest launch of a kernel; its messages follow
};

std::string path_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

const void* asked_from = nullptr;
std::string how_it_is_reached() {
  return "NCCL in " + path_of(asked_from) + ", through its profiler interface";
}

/// Key of a communicator: NCCL's number for it is made of the ncclUniqueId; used again where the id is.
std::uint64_t key_of(std::uint64_t number, int rank) {
  static std::mutex mutex;
  static std::map<std::pair<std::uint64_t, int>, std::uint64_t> times;
  const std::lock_guard lock(mutex);
  return mix(mix(0x70726f66, number), times[{number, rank}]++) | 1;
}

/// A communicator has come into being. 0: no events are wanted.
int begin(void** context, std::uint64_t number, int ranks, int rank, const void* caller, int wanted) {
  auto* const made = new Context;
  *context = made;
  if (is_wrapped(caller) || ranks < 1 || rank < 0 || rank >= ranks) return 0;
  const std::uint64_t key = key_of(number, rank);
  asked_from = caller;
  if (!observe(rank, ranks, key, how_it_is_reached)) return 0;
  made->communicator = announce(*Process::self().recorder(), key, rank, ranks);
  return made->communicator != nullptr ? wanted : 0;
}

struct Known {
  std::string_view name;
  Function function;
};
constexpr Known kFunctions[] = {
#define NCCL_COLLECTIVE(name, counted, ...) {#name, Function::Nccl##counted},
#define NCCL_PAIR(name, counted, ...) {#name, Function::Nccl##counted},
#include "signature/functions.def"
};

Function function_of(const char* name) {
  for (const Known& known : kFunctions) {
    if (name != nullptr && known.name == name) return known.function;
  }
  return Function::None;
}

/// As NCCL writes ncclDataType_t, by value.
constexpr std::string_view kTypes[] = {"ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
                                       "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                       "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};

DatatypeId type_of(const char* name) {
  for (std::size_t value = 0; value < std::size(kTypes); ++value) {
    if (name != nullptr && kTypes[value] == name) return static_cast<DatatypeId>(kNcclDatatype + value);
  }
  return kUnknownDatatype;
}

std::uint64_t data_of(Function function, DatatypeId type, std::size_t count) {
  if (count == 0) return 0;
  const NcclDatatype* known = nccl_datatype(type);
  if (!traits(function).bytes_only || known == nullptr) return mix(type, count);
  return mix(1, count * static_cast<std::size_t>(known->bytes));
}

/// The call as the record wants it; its place in the program is not known here.
Recorder::Draft draft_of(const Communicator& own, Function function, const char* type, std::size_t count,
                         std::int32_t partner, const Place& place) {
  Recorder::Draft draft;
  draft.function = function;
  draft.communicator = static_cast<std::uint16_t>(own.slot);
  draft.datatype = type_of(type);
  draft.count = static_cast<std::int64_t>(count);
  draft.root = partner;
  draft.tag = place.stream;
  draft.launch = place.launch;
  return draft;
}

void collective(Recorder& recorder, const Communicator& own, const char* name, const char* type,
                std::size_t count, std::int32_t root, const Place& place) {
  const Function function = function_of(name);
  // What NCCL does that we do not know cannot be compared, but counts.
  const std::int32_t agreed_root = traits(function).rooted ? root : 0;
  const Recorder::Draft draft = draft_of(own, function, type, count, root, place);
  std::uint64_t agreed = agreed_start(function, agreed_root, 0);
  agreed = mix(agreed, data_of(function, draft.datatype, count));
  if (place.stream == kCapturedStream) agreed = mix(agreed, 0x6772617068);
  Recorder::end(recorder.begin_numbered(draft, {agreed, 0}, thread_record(recorder)));
}

void message(Recorder& recorder, Communicator& own, const EventDescription::P2p& event, const Place& place) {
  const Function function = function_of(event.function);
  if (function != Function::NcclSend && function != Function::NcclRecv) return;
  PairRecord* const pair = own.pair(recorder, event.peer, function == Function::NcclRecv);
  if (pair == nullptr) return;
  const Recorder::Draft draft = draft_of(own, function, event.datatype, event.count, event.peer, place);
  Recorder::end(recorder.begin_pair(draft, *pair, data_of(function, draft.datatype, event.count),
                                    thread_record(recorder)));
}

/// What stop_event gets: the context where a kernel has been launched, else nothing.
void* take(Context& context, const EventDescription& event, std::uint64_t type) {
  Communicator* const own = context.communicator;
  Recorder* const recorder = Process::self().recorder();
  if (own == nullptr || recorder == nullptr) return nullptr;
  const auto place_on = [&](void* stream) {
    return next_place(*recorder, reinterpret_cast<Handle>(stream), own->slot);
  };
  if (type == kEventKernelLaunch) {
    context.kernel = place_on(event.kernel_launch_stream);
    return &context;
  }
  if (type == kEventCollApi) {
    const auto& call = event.coll_api;
    const Place place = call.captured ? Place{} : place_on(call.stream);
    collective(*recorder, *own, call.function, call.datatype, call.count, call.root, place);
  } else if (type == kEventColl) {
    collective(*recorder, *own, event.coll.function, event.coll.datatype, event.coll.count, event.coll.root,
               kNowhere);
  } else if (type == kEventP2p) {
    message(*recorder, *own, event.p2p, context.kernel);
  }
  return nullptr;
}

template <bool is_v4>
int start_event(void* context, void** event, EventDescription* description) {
  *event = take(*static_cast<Context*>(context), *description,
                is_v4 ? description->type_v4 : description->type_v5);
  return kSuccess;
}
int stop_event(void* event) {
  Recorder* const recorder = Process::self().recorder();
  if (event != nullptr && recorder != nullptr) launched(*recorder, static_cast<Context*>(event)->kernel);
  return kSuccess;
}
int record_state(void*, int, void*) { return kSuccess; }

int finalize(void* context) {
  const std::unique_ptr<Context> ended(static_cast<Context*>(context));
  Recorder* const recorder = Process::self().recorder();
  if (ended->communicator != nullptr && recorder != nullptr)
    recorder->flag_communicator(ended->communicator->slot, kCommunicatorFreed);
  return kSuccess;
}

int init_v1(void** context, int* mask) {
  *context = new Context;
  *mask = 0;
  static std::atomic<bool> said{false};
  const void* const caller = __builtin_return_address(0);
  if (!is_wrapped(caller) && !said.exchange(true) && Process::self().start(kUsesNccl)) {
    log().say(LogLevel::Info, "NCCL in " + path_of(caller) +
                                  " is linked in statically and older than 2.27: its calls cannot be seen");
  }
  return kSuccess;
}
int init_v4(void** context, int* mask, const char*, std::uint64_t number, int, int ranks, int rank, void*) {
  *mask = begin(context, number, ranks, rank, __builtin_return_address(0), kEventColl | kEventP2p);
  return kSuccess;
}
int init_v5(void** context, std::uint64_t number, int* mask, const char*, int, int ranks, int rank, void*) {
  *mask = begin(context, number, ranks, rank, __builtin_return_address(0),
                kEventCollApi | kEventKernelLaunch | kEventP2p);
  return kSuccess;
}

/// Whether the user has named a plugin in a file that NCCL reads into its environment.
bool named_in_a_file() {
  const char* home = std::getenv("HOME");
  const char* own = std::getenv("NCCL_CONF_FILE");
  const std::string user = own != nullptr ? own : std::string(home != nullptr ? home : "") + "/.nccl.conf";
  for (const std::string& path : {user, std::string("/etc/nccl.conf")}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(kVariable)) return true;
    }
  }
  return false;
}

/// Our line of the environment, in memory of our own: later its value is changed in place, since other
/// threads may be reading the environment then.
char offered[4200];
constexpr const char* kNone = "none";

/// Before main.
__attribute__((constructor)) void offer_plugin() {
  const std::string path = path_of(reinterpret_cast<const void*>(&offer_plugin));
  const char* named = std::getenv(kVariable);
  const char* disabled = std::getenv("ACCEL_DISABLE");
  // A parent of ours may have been here before.
  const bool by_user = named != nullptr && path != named;
  if (by_user || (disabled != nullptr && *disabled == '1') || named_in_a_file()) return;
  const std::string line = std::string(kVariable) + "=" + path;
  if (line.size() >= sizeof offered) return;
  std::memcpy(offered, line.c_str(), line.size() + 1);
  putenv(offered);
}

}  // namespace

void withdraw_plugin() {
  if (offered[0] == '\0') return;
  std::memcpy(offered + std::strlen(kVariable) + 1, kNone, std::strlen(kNone) + 1);
}

}  // namespace accel::nccl

using namespace accel::nccl;

// NCCL looks these up by name; v2 and v3 have v1's functions.
#define ACCEL_PROFILER(type, symbol, init, is_v4) \
  ACCEL_EXPORT const type symbol;                 \
  const type symbol = {"libaccel", init, start_event<is_v4>, stop_event, record_state, finalize};
ACCEL_PROFILER(ProfilerV1, ncclProfiler_v1, init_v1, true)
ACCEL_PROFILER(ProfilerV1, ncclProfiler_v2, init_v1, true)
ACCEL_PROFILER(ProfilerV1, ncclProfiler_v3, init_v1, true)
ACCEL_PROFILER(ProfilerV4, ncclProfiler_v4, init_v4, true)
ACCEL_PROFILER(ProfilerV5, ncclProfiler_v5, init_v5, false)
