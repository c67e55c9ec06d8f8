// Who this process is, as far as whoever started it says so in the environment.
#pragma once

namespace accel {

struct LauncherRank {
  int rank = -1;  ///< -1: nobody says so
  int size = -1;
};

/// torchrun's and its kin's RANK, Open MPI's, hydra's and PMI's, srun's. Allocates nothing.
LauncherRank launcher_rank();

}  // namespace accel
