#include "launcher/diff.h"

#include <accel/accel.h>
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <set>

#include "launcher/batch/adjustable.h"
#include "launcher/command_line.h"
#include "launcher/failure.h"
#include "signature/function.h"

namespace accel {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& value) {
  if (value.is_null()) return "unset";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> command_of(const RecordedRun& run) {
  return run.manifest.value("command", std::vector<std::string>{});
}

void compare_commands(const RecordedRun& before, const RecordedRun& after, std::vector<std::string>& lines) {
  const std::vector<std::string> one = command_of(before);
  const std::vector<std::string> other = command_of(after);
  if (one == other) return;
  lines.push_back(fmt::format("command: {}\n      →  {}", quoted(one), quoted(other)));
}

void compare_values(const char* what, const Json& before, const Json& after,
                    std::vector<std::string>& lines) {
  std::set<std::string> names;
  for (const auto& [name, value] : before.items()) names.insert(name);
  for (const auto& [name, value] : after.items()) names.insert(name);
  for (const std::string& name : names) {
    const Json one = before.contains(name) ? before[name] : Json();
    const Json other = after.contains(name) ? after[name] : Json();
    if (one != other) lines.push_back(fmt::format("{}{}: {} → {}", what, name, text_of(one), text_of(other)));
  }
}

/// What all ranks have of one kind: "4 × Open MPI v4.1.4".
std::string summary(const RecordedRun& run, const char* field) {
  std::map<std::string, int> counts;
  for (const Json& rank : run.manifest.value("ranks", Json::array())) {
    const std::string value = rank.value(field, "");
    if (!value.empty()) ++counts[value];
  }
  std::string text;
  for (const auto& [value, count] : counts) text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  return text;
}

std::string gpus_of(const RecordedRun& run) {
  std::map<std::string, int> counts;
  for (const Json& gpu : run.manifest.value("gpus", Json::array())) ++counts[gpu.value("name", "")];
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} × {}", text.empty() ? "" : ", ", count, name);
  return text;
}

std::size_t ranks_of(const RecordedRun& run) { return run.manifest.value("ranks", Json::array()).size(); }

/// Examples a step and rank, where the sizes are known.
std::optional<std::int64_t> a_rank(const RecordedRun& run) {
  const Json sizes = run.manifest.value("sizes", Json());
  if (!sizes.is_object() || sizes.value("batch", 0) == 0) return std::nullopt;
  return sizes.value("batch", std::int64_t{0}) * sizes.value("accumulation", std::int64_t{1});
}

/// The guide's case: the same batch a device on more devices is another effective batch.
void compare_sizes(const RecordedRun& before, const RecordedRun& after, std::vector<std::string>& lines) {
  const auto one_ranks = static_cast<std::int64_t>(ranks_of(before));
  const auto other_ranks = static_cast<std::int64_t>(ranks_of(after));
  if (one_ranks != other_ranks) lines.push_back(fmt::format("ranks: {} → {}", one_ranks, other_ranks));
  const auto one = a_rank(before);
  const auto other = a_rank(after);
  if (one && other && one_ranks > 0 && other_ranks > 0) {
    const std::int64_t was = *one * one_ranks;
    const std::int64_t is = *other * other_ranks;
    if (was == is) return;
    std::string line = fmt::format("effective batch: {} × {} ranks = {} → {} × {} ranks = {}; ", *one,
                                   one_ranks, was, *other, other_ranks, is);
    if (was % other_ranks == 0)
      line += fmt::format("use {} a rank for the same step, or ", was / other_ranks);
    lines.push_back(line + "consider the learning rate");
  } else if (one_ranks != other_ranks && one_ranks > 0 && other_ranks > 0) {
    lines.push_back(fmt::format(
        "if the batch size is a rank's, the effective batch is {:.3g} times what it was: divide it by "
        "that, or consider the learning rate",
        static_cast<double>(other_ranks) / static_cast<double>(one_ranks)));
  }
}

std::string describe(const RecordedRun::Process& process, const CallRecord& call) {
  const FunctionTraits& what = traits(call.function);
  std::string text(what.name);
  if (what.data && !what.vector)
    text += fmt::format(" {}[{}]", process.reader->datatype(call.datatype).name, call.count);
  if (what.reduces && call.op != 0) text += fmt::format(", {}", name_of_op(call.op));
  if (what.rooted) text += fmt::format(", root {}", call.root);
  return text;
}

bool is_same(const RecordedRun::Process& one, const CallRecord& here, const RecordedRun::Process& other,
             const CallRecord& there) {
  if (here.function != there.function || here.op != there.op || here.root != there.root) return false;
  if (one.reader->datatype(here.datatype).name != other.reader->datatype(there.datatype).name) return false;
  // Of a vector collective `count` says where its blocks lie; those are not compared.
  return traits(here.function).vector || here.count == there.count;
}

/// The first number at which two communicators' histories differ; nullopt: they are the same as far as both
/// go.
std::optional<std::uint64_t> parting(const RecordedRun::Process& one, const CommunicatorEvidence& here,
                                     const RecordedRun::Process& other, const CommunicatorEvidence& there,
                                     bool& overwritten) {
  const std::uint64_t both = std::min(here.record.sequence, there.record.sequence);
  const std::uint64_t most = std::min(one.reader->header().collectives, other.reader->header().collectives);
  for (std::uint64_t number = both > most ? both - most : 1; number <= both; ++number) {
    const auto a = one.reader->call(here.slot, number);
    const auto b = other.reader->call(there.slot, number);
    if (!a || !b) {
      overwritten = true;
    } else if (!is_same(one, *a, other, *b)) {
      return number;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> differences(const RecordedRun& before, const RecordedRun& after) {
  std::vector<std::string> lines;
  compare_commands(before, after, lines);
  compare_sizes(before, after, lines);
  const auto line = [&](const char* what, const std::string& one, const std::string& other) {
    if (one != other)
      lines.push_back(
          fmt::format("{}: {} → {}", what, one.empty() ? "none" : one, other.empty() ? "none" : other));
  };
  line("hosts", summary(before, "host"), summary(after, "host"));
  line("MPI", summary(before, "mpi"), summary(after, "mpi"));
  line("NCCL", summary(before, "nccl"), summary(after, "nccl"));
  line("GPUs", gpus_of(before), gpus_of(after));
  line("driver", before.manifest.value("driver", ""), after.manifest.value("driver", ""));
  line("kernel", before.manifest.value("kernel", ""), after.manifest.value("kernel", ""));
  line("libaccel", before.manifest.value("accel", ""), after.manifest.value("accel", ""));
  compare_values("", before.manifest.value("environment", Json::object()),
                 after.manifest.value("environment", Json::object()), lines);
  line("exit status", text_of(before.manifest.value("status", Json())),
       text_of(after.manifest.value("status", Json())));
  return lines;
}

namespace {

bool is_seeded(const RecordedRun& run) {
  return !run.manifest.value("seeds", Json::array()).empty() ||
         run.manifest.value("environment", Json::object()).contains("PYTHONHASHSEED");
}

}  // namespace

std::string divergence(const RecordedRun& before, const RecordedRun& after) {
  std::uint64_t compared = 0;
  bool overwritten = false;
  for (const RecordedRun::Process& one : before.processes) {
    const auto other = std::find_if(after.processes.begin(), after.processes.end(), [&](const auto& process) {
      return process.evidence.world_rank == one.evidence.world_rank;
    });
    if (one.evidence.world_rank < 0 || other == after.processes.end()) continue;
    // The n-th communicator of one run is that of the other, if it has its shape.
    const std::size_t count =
        std::min(one.evidence.communicators.size(), other->evidence.communicators.size());
    for (std::size_t i = 0; i < count; ++i) {
      const CommunicatorEvidence& here = one.evidence.communicators[i];
      const CommunicatorEvidence& there = other->evidence.communicators[i];
      const int rank = one.evidence.world_rank;
      if (here.record.size != there.record.size)
        return fmt::format(
            "rank {}: its communicator {} has {} ranks in the one and {} in the other: the runs are laid out "
            "differently",
            rank, i, here.record.size, there.record.size);
      const auto number = parting(one, here, *other, there, overwritten);
      if (number) {
        const auto a = one.reader->call(here.slot, *number);
        const auto b = other->reader->call(there.slot, *number);
        return fmt::format("the collectives part at #{} of rank {}'s communicator {}: {} → {}", *number, rank,
                           i, a ? describe(one, *a) : "?", b ? describe(*other, *b) : "?");
      }
      compared += std::min(here.record.sequence, there.record.sequence);
      if (here.record.sequence != there.record.sequence)
        return fmt::format(
            "rank {}: communicator {} saw {} collectives in the one and {} in the other; as far as both go "
            "they are the same",
            rank, i, here.record.sequence, there.record.sequence);
    }
  }
  if (compared == 0) return {};
  return fmt::format("{} collectives are the same in both{}", compared,
                     overwritten ? ", as far as the records still hold them" : "");
}

int diff_main(int argc, char** argv) {
  CLI::App app(
      "What changed from one run to another, what follows from it, and the first collective at which they "
      "part.",
      "accelrun diff");
  std::string before;
  std::string after;
  app.add_option("BEFORE", before, "directory of a run (accelrun --keep), or a manifest")->required();
  app.add_option("AFTER", after, "the other")->required();
  app.footer("\nExit status: 0 nothing differs, 1 something does.");
  if (int status = 0; !parse(app, argc, argv, status)) return status;
  const RecordedRun one = open_run(before);
  const RecordedRun other = open_run(after);
  const std::vector<std::string> lines = differences(one, other);
  for (const std::string& line : lines) std::cout << line << "\n";
  const std::string parted = divergence(one, other);
  if (!parted.empty()) std::cout << parted << "\n";
  for (const RecordedRun* run : {&one, &other}) {
    for (const std::string& file : run->unreadable) std::cout << run->path << "/" << file << "\n";
  }
  if (lines.empty() && parted.empty()) std::cout << "nothing differs\n";
  if (!is_seeded(one) && !is_seeded(other))
    std::cout << "note: neither command sets a seed: results may differ by chance, too\n";
  const bool same =
      lines.empty() && (parted.empty() || parted.find("are the same in both") != std::string::npos);
  return same ? 0 : 1;
}

}  // namespace accel
