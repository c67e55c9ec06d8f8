#include "lifecycle/launcher_rank.h"

#include <cstdlib>

namespace accel {
namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoi(text) : -1;
}

}  // namespace

LauncherRank launcher_rank() {
  struct Launcher {
    const char* rank;
    const char* size;
  };
  constexpr Launcher kLaunchers[] = {
      {"RANK", "WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
  };
  for (const Launcher& launcher : kLaunchers) {
    const LauncherRank found{number(launcher.rank), number(launcher.size)};
    if (found.rank >= 0 && found.size > found.rank) return found;
  }
  return {};
}

}  // namespace accel
