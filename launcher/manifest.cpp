#include "launcher/manifest.h"

#include <accel/accel.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "launcher/gpus.h"

namespace accel {
namespace {

/// What changes results or speed.
bool matters(std::string_view name) {
  constexpr std::string_view kBeginnings[] = {"NCCL_",  "CUDA_",     "CUBLAS_", "CUDNN_", "OMP_",
                                              "MKL_",   "OMPI_MCA_", "UCX_",    "MPICH_", "I_MPI_",
                                              "TORCH_", "XLA_",      "TF_"};
  constexpr std::string_view kNames[] = {"PYTHONHASHSEED", "PL_GLOBAL_SEED", "SEED"};
  return std::any_of(std::begin(kBeginnings), std::end(kBeginnings),
                     [&](std::string_view one) { return name.starts_with(one); }) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

nlohmann::json environment() {
  nlohmann::json result = nlohmann::json::object();
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view line(*one);
    const auto equals = line.find('=');
    if (equals != std::string_view::npos && matters(line.substr(0, equals)))
      result[std::string(line.substr(0, equals))] = std::string(line.substr(equals + 1));
  }
  return result;
}

}  // namespace

std::vector<std::string> seeds_in(const std::vector<std::string>& command) {
  std::vector<std::string> seeds;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    const auto equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    if (!flag.ends_with("seed")) continue;
    if (equals != std::string::npos) {
      seeds.push_back(word);
    } else if (i + 1 < command.size()) {
      seeds.push_back(word + " " + command[i + 1]);
    }
  }
  return seeds;
}

nlohmann::json make_manifest(const std::vector<std::string>& command, const nlohmann::json& sizes, int status,
                             const Evidence& evidence) {
  using Json = nlohmann::json;
  utsname name{};
  uname(&name);
  Json ranks = Json::array();
  std::vector<const ProcessEvidence*> sorted;
  for (const ProcessEvidence& process : evidence.processes) {
    if (process.world_rank >= 0) sorted.push_back(&process);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->world_rank < b->world_rank; });
  for (const ProcessEvidence* process : sorted) {
    std::uint64_t calls = 0;
    for (const CommunicatorEvidence& communicator : process->communicators)
      calls += communicator.record.sequence;
    ranks.push_back({{"rank", process->world_rank},
                     {"host", process->host},
                     {"program", process->program},
                     {"mpi", process->library},
                     {"nccl", process->nccl},
                     {"communicators", process->communicators.size()},
                     {"collectives", calls}});
  }
  Json manifest = {{"version", 1},
                   {"accel", ACCEL_VERSION},
                   {"command", command},
                   {"status", status},
                   {"kernel", name.release},
                   {"seeds", seeds_in(command)},
                   {"environment", environment()},
                   {"ranks", ranks}};
  if (!sizes.is_null()) manifest["sizes"] = sizes;
  if (const auto gpus = look_at_gpus()) {
    manifest["driver"] = gpus->driver;
    manifest["gpus"] = Json::array();
    for (const Gpu& gpu : gpus->all) manifest["gpus"].push_back({{"name", gpu.name}, {"bytes", gpu.total}});
  }
  return manifest;
}

}  // namespace accel
