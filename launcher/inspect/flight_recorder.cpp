#include "launcher/inspect/flight_recorder.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>

#include "launcher/failure.h"
#include "launcher/inspect/pickle.h"
#include "report/python_frames.h"
#include "report/shape.h"
#include "report/symbols.h"

namespace accel {
namespace {

/// The analyzer tells by it what it may rely on: from 2.4 on sizes of all-to-all.
constexpr const char* kVersion = "2.4";

/// What one rank gives and gets, by the call's count.
enum class Sizes : std::uint8_t { None, Same, Gathered, Scattered, Exchanged };

struct Equal {
  const char* name = nullptr;  ///< nullptr: the format knows no such call
  Sizes sizes = Sizes::None;
};

/// What the format calls it.
Equal equal_of(Function function) {
  switch (traits(function).kind) {
    case Function::Barrier:
    case Function::Finalize:
      return {"barrier"};
    case Function::Bcast:
    case Function::NcclBroadcast:
      return {"broadcast", Sizes::Same};
    case Function::Reduce:
    case Function::NcclReduce:
      return {"reduce", Sizes::Same};
    case Function::Allreduce:
    case Function::NcclAllReduce:
      return {"all_reduce", Sizes::Same};
    case Function::Reduce_scatter_block:
    case Function::NcclReduceScatter:
      return {"_reduce_scatter_base", Sizes::Scattered};
    case Function::Reduce_scatter:
      return {"reduce_scatter_v", Sizes::Exchanged};
    case Function::Gather:
    case Function::NcclGather:
      return {"gather", Sizes::Gathered};
    case Function::Gatherv:
      return {"gather", Sizes::Exchanged};
    case Function::Scatter:
    case Function::NcclScatter:
      return {"scatter", Sizes::Scattered};
    case Function::Scatterv:
      return {"scatter", Sizes::Exchanged};
    case Function::Allgather:
    case Function::NcclAllGather:
      return {"_all_gather_base", Sizes::Gathered};
    case Function::Allgatherv:
      return {"all_gather_v", Sizes::Exchanged};
    case Function::Alltoall:
    case Function::NcclAlltoAll:
    case Function::Alltoallv:
    case Function::Alltoallw:
      return {"all_to_all", Sizes::Exchanged};
    case Function::Comm_split:
    case Function::Comm_split_type:
    case Function::NcclCommSplit:
      return {"split"};
    case Function::NcclSend:
      return {"send", Sizes::Same};
    case Function::NcclRecv:
      return {"recv", Sizes::Same};
    default:
      return {};
  }
}

/// PyTorch's name of a datatype, as its tensors print it; ours where it has none.
std::string_view scalar_type(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"float32", "Float"},
                                                                      {"float64", "Double"},
                                                                      {"float16", "Half"},
                                                                      {"bfloat16", "BFloat16"},
                                                                      {"int8", "Char"},
                                                                      {"uint8", "Byte"},
                                                                      {"int16", "Short"},
                                                                      {"int32", "Int"},
                                                                      {"int64", "Long"},
                                                                      {"uint16", "UInt16"},
                                                                      {"uint32", "UInt32"},
                                                                      {"uint64", "UInt64"},
                                                                      {"bool", "Bool"},
                                                                      {"float8_e4m3", "Float8_e4m3fn"},
                                                                      {"float8_e5m2", "Float8_e5m2"},
                                                                      {"complex64", "ComplexFloat"},
                                                                      {"complex128", "ComplexDouble"}};
  for (const auto& [ours, theirs] : kNames) {
    if (name == ours) return theirs;
  }
  return name;
}

/// World ranks of a communicator's members, by communicator rank.
using Groups = std::map<std::uint64_t, std::map<std::int32_t, std::int32_t>>;

Groups groups_of(const std::vector<Collectives::Rank>& ranks) {
  Groups groups;
  for (const Collectives::Rank& rank : ranks) {
    for (const CommunicatorEvidence& one : rank.process.communicators)
      groups[one.record.key][one.record.rank] = rank.process.world_rank;
  }
  return groups;
}

/// Elements that this rank gives and gets.
struct Elements {
  std::int64_t input = 0, output = 0;
};

Elements elements_of(const CallRecord& record, const RecordReader& reader, Sizes sizes, std::int64_t members,
                     bool is_root) {
  if (traits(record.function).vector) {
    const auto vectors = reader.vectors(record);
    if (!vectors) return {};
    const auto sum = [](const std::vector<PeerBlock>& blocks) {
      return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0},
                             [](std::int64_t total, const PeerBlock& block) { return total + block.count; });
    };
    return {sum(vectors->sends), sum(vectors->expects)};
  }
  const std::int64_t all = record.count * members;
  switch (sizes) {
    case Sizes::None:
      return {};
    case Sizes::Same:
      return {record.count, record.count};
    case Sizes::Gathered:
      return {record.count, is_root ? all : 0};
    case Sizes::Scattered:
      return {is_root ? all : 0, record.count};
    case Sizes::Exchanged:
      return {all, all};
  }
  return {};
}

/// The entries of one rank.
class RankDump {
 public:
  RankDump(const Groups& groups, Collectives::Rank& rank, std::int64_t realtime_offset_ns)
      : communicators_(groups), rank_(rank), offset_ns_(realtime_offset_ns) {}

  /// False: the format has no such call.
  bool add(const CallRecord& record) {
    const FunctionTraits& what = traits(record.function);
    const Equal equal = equal_of(record.function);
    const ProcessCalls::Membership& in = rank_.calls.membership(record);
    const auto communicator = communicators_.find(in.key);
    if (equal.name == nullptr || communicator == communicators_.end()) return false;
    std::string group_name = communicator_name(in.key);
    std::string name = fmt::format("nccl:{}", equal.name);
    std::map<std::int32_t, std::int32_t> members = communicator->second;
    const bool is_pair = !what.numbered;
    if (is_pair) {
      const bool sends = what.kind == Function::NcclSend;
      const std::int32_t from = sends ? in.rank : record.root;
      const std::int32_t to = sends ? record.root : in.rank;
      std::erase_if(members, [&](const auto& one) { return one.first != from && one.first != to; });
      if (members.size() != 2) return false;
      group_name += fmt::format(":{}->{}", from, to);
      // The format counts the two within their group, by world rank.
      const int source = members[from] < members[to] ? 0 : 1;
      name += sends ? fmt::format(" {}->{}", source, 1 - source) : fmt::format(" {}<-{}", 1 - source, source);
    }
    Group& group = group_of(group_name, what.library, members);
    const State state = state_of(record, group);
    const bool is_root = !what.rooted || record.root == in.rank;
    const Elements elements = elements_of(record, rank_.reader(), equal.sizes, in.size, is_root);
    const std::int64_t number = static_cast<std::int64_t>(count_++);

    Pickle& out = entries_;
    out.begin_dict();
    out.text("frames");
    out.begin_list();
    for (const Frame& frame : frames_of(record)) {
      out.begin_dict();
      out.entry("name", frame.function.empty() ? "?" : frame.function);
      out.entry("filename", frame.file.empty() ? frame.module : frame.file);
      out.entry("line", frame.line);
      out.end_dict();
    }
    out.end_list();
    out.entry("record_id", number);
    out.entry("pg_id", group.number);
    out.text("process_group");
    out.begin_tuple();
    out.text(group_name);
    out.text(group.library);
    out.end_tuple();
    out.entry("collective_seq_id", static_cast<std::int64_t>(record.sequence));
    out.entry("p2p_seq_id", static_cast<std::int64_t>(is_pair ? record.sequence : 0));
    out.entry("op_id", number + 1);
    out.entry("profiling_name", name);
    out.entry("time_created_ns", rank_.calls.monotonic(record.started) + offset_ns_);
    const std::string_view type = equal.sizes == Sizes::None ? "" : type_of(record.datatype);
    add_tensors("input_sizes", "input_dtypes", type, elements.input);
    add_tensors("output_sizes", "output_dtypes", type, elements.output);
    out.entry("state", state == State::Completed ? "completed"
                       : state == State::Started ? "started"
                                                 : "scheduled");
    for (const char* unknown : {"time_discovered_started_ns", "time_discovered_completed_ns"}) {
      out.text(unknown);
      out.none();
    }
    if (const std::uint64_t ticks = Duration::decode(record.returned); ticks != 0) {
      out.text("duration_ms");
      out.real(static_cast<double>(rank_.calls.nanoseconds(static_cast<std::int64_t>(ticks))) / 1e6);
    }
    out.text("retired");
    out.boolean(state == State::Completed);
    out.entry("timeout_ms", 0);
    out.text("is_p2p");
    out.boolean(is_pair);
    out.end_dict();
    return true;
  }

  std::uint64_t count() const { return count_; }

  std::string file() const {
    Pickle out;
    out.begin_dict();
    out.entry("version", kVersion);
    out.text("pg_config");
    out.begin_dict();
    for (const auto& [name, group] : groups_) {
      out.text(name);
      out.begin_dict();
      out.entry("name", name);
      out.entry("desc", group.library);
      out.entry("ranks", group.ranks);
      out.end_dict();
    }
    out.end_dict();
    out.text("pg_status");
    out.begin_dict();
    for (const auto& [name, group] : groups_) {
      out.text(name);
      out.begin_dict();
      out.entry("last_enqueued_collective", group.last[0]);
      out.entry("last_started_collective", group.last[1]);
      out.entry("last_completed_collective", group.last[2]);
      out.end_dict();
    }
    out.end_dict();
    out.text("entries");
    out.begin_list();
    out.add(entries_);
    out.end_list();
    out.end_dict();
    return out.file();
  }

 private:
  enum class State : std::uint8_t { Scheduled, Started, Completed };
  struct Group {
    std::int64_t number = 0;
    const char* library = "";
    std::string ranks;          ///< "[0, 1]"
    std::int64_t last[3] = {};  ///< numbers of the latest calls, by how far they have come: State
  };

  Group& group_of(const std::string& name, Library library,
                  const std::map<std::int32_t, std::int32_t>& members) {
    const auto number = static_cast<std::int64_t>(groups_.size());
    const auto [place, is_new] = groups_.try_emplace(name);
    Group& group = place->second;
    if (!is_new) return group;
    group.number = number;
    group.library = library == Library::Nccl ? "NCCL" : "MPI";
    for (const auto& [rank, world_rank] : members)
      group.ranks += fmt::format("{}{}", group.ranks.empty() ? "[" : ", ", world_rank);
    group.ranks += "]";
    return group;
  }

  State state_of(const CallRecord& record, Group& group) const {
    State state = State::Scheduled;
    if (!traits(record.function).on_stream) {
      state = record.returned != 0 ? State::Completed : State::Started;
    } else if (record.tag < rank_.process.streams.size()) {
      const StreamEvidence& stream = rank_.process.streams[record.tag];
      const bool is_next = static_cast<std::uint16_t>(stream.record.completed + 1) == record.launch;
      state = stream.knows_complete(record) ? State::Completed : is_next ? State::Started : State::Scheduled;
    }
    for (int i = 0; i <= static_cast<int>(state); ++i)
      group.last[i] = std::max(group.last[i], static_cast<std::int64_t>(record.sequence));
    return state;
  }

  const std::vector<Frame>& frames_of(const CallRecord& record) {
    const auto [place, is_new] = frames_.try_emplace(record.site);
    if (!is_new) return place->second;
    const SiteEvidence site = rank_.reader().site(record);
    if (maps_.empty()) maps_ = rank_.reader().maps();
    std::vector<PythonThread> python = parse_python(site.python);
    place->second = user_frames(maps_, site.addresses);
    if (!python.empty()) place->second = with_python(place->second, python.front().frames);
    return place->second;
  }

  std::string_view type_of(DatatypeId id) {
    const auto [place, is_new] = types_.try_emplace(id);
    if (is_new) place->second = scalar_type(rank_.reader().datatype(id).name);
    return place->second;
  }

  /// One flat tensor; `type` empty: none.
  void add_tensors(const char* sizes, const char* types, std::string_view type, std::int64_t elements) {
    entries_.text(sizes);
    entries_.begin_list();
    entries_.begin_list();
    if (!type.empty()) entries_.integer(elements);
    entries_.end_list();
    entries_.end_list();
    entries_.text(types);
    entries_.begin_list();
    if (!type.empty()) entries_.text(type);
    entries_.end_list();
  }

  const Groups& communicators_;
  Collectives::Rank& rank_;
  std::int64_t offset_ns_;
  std::string maps_;
  Pickle entries_;
  std::uint64_t count_ = 0;
  std::map<std::string, Group> groups_;
  std::map<std::uint16_t, std::vector<Frame>> frames_;  ///< by call site
  std::map<DatatypeId, std::string> types_;
};

void write_file(const std::string& path, const std::string& bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "we"), &std::fclose);
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() ||
      std::fflush(file.get()) != 0) {
    throw Failure(ACCEL_EXIT_USAGE, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
}

}  // namespace

FlightRecorderDump write_flight_recorder(const std::string& directory, Collectives& collectives,
                                         const Selection& selection, std::uint64_t most) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw Failure(ACCEL_EXIT_USAGE, fmt::format("cannot make {}: {}", directory, error.message()));
  const Groups groups = groups_of(collectives.ranks());
  FlightRecorderDump dump;
  for (Collectives::Rank& rank : collectives.ranks()) {
    if (!selection(rank.process)) continue;
    std::vector<CallRecord> calls;
    collectives.each(
        rank, [&](const Collectives::Call& call) { calls.push_back(call.record); }, most);
    const std::uint64_t since = calls.empty() || most == UINT64_MAX ? 0 : calls.front().started;
    UnnumberedTail others(rank.calls.shared_reader());
    others.writer_is_gone();
    others.read([&](const CallRecord& record, std::uint64_t) {
      const bool is_pair = record.function == Function::NcclSend || record.function == Function::NcclRecv;
      if (is_pair && record.started >= since) calls.push_back(record);
    });
    std::stable_sort(calls.begin(), calls.end(),
                     [](const CallRecord& a, const CallRecord& b) { return a.started < b.started; });
    RankDump entries(groups, rank, collectives.realtime_offset_ns());
    for (const CallRecord& call : calls) dump.without_equal += entries.add(call) ? 0 : 1;
    dump.entries += entries.count();
    write_file(fmt::format("{}/rank_{}", directory, rank.process.world_rank), entries.file());
  }
  return dump;
}

}  // namespace accel
