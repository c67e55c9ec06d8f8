// Who starts the ranks, and how each hands them environment variables.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace accel {

enum class Engine {
  Plain,      ///< the command is the program, or starts it
  Torchrun,   ///< torchrun, accelerate launch, llamafactory-cli: hand their environment on, restart ranks
  Horovod,    ///< horovodrun: hands its own environment on, by mpirun -x or ssh
  Srun,       ///< srun of Slurm: hands its own environment on, too
  DeepSpeed,  ///< deepspeed: hands on what a file says (DS_ENV_FILE)
  OpenMpi,    ///< mpirun of Open MPI or PRRTE: -x NAME=VALUE
  Hydra,      ///< mpiexec of MPICH, Intel MPI, MVAPICH: -genv NAME VALUE
};

/// Whether the variables go into the command's own environment.
bool inherits(Engine engine);

/// Text of a DS_ENV_FILE: what the user's own says, and these variables.
std::string deepspeed_environment(const std::map<std::string, std::string>& variables);

/// Whether the command may start ranks on other hosts: by the hosts that it names, or that a resource manager
/// has granted.
bool may_span_hosts(Engine engine, const std::vector<std::string>& command);

/// The program's path as the shell would find it. Throws Failure: 127 not found, 126 not executable.
std::string find_program(const std::string& name);

/// By the name of the program, or of the module that Python runs; then by what it says to --version: "mpirun"
/// can be anybody's.
Engine detect_engine(const std::vector<std::string>& command);

/// So that a rank which fails ends the attempt: the engine neither starts it again by itself nor waits for
/// the others. What the environment already says about it stays. Returns what the user had asked for
/// otherwise, "--max-restarts 3"; empty: nothing.
std::string end_at_first_failure(Engine engine, std::vector<std::string>& command,
                                 std::map<std::string, std::string>& variables);

/// The command with the variables put where the engine wants them; for Plain they are to be set in its
/// environment, for the others they must not be (mpirun itself is no rank). An LD_PRELOAD that the command
/// already gives its ranks is kept, behind ours. `by_name`: variables of the environment that are handed on
/// without their values, which everybody on the host could read. Throws Failure 64 for a host file that does
/// not exist.
std::vector<std::string> command_for(Engine engine, std::vector<std::string> command,
                                     const std::map<std::string, std::string>& variables,
                                     const std::vector<std::string>& by_name = {});

}  // namespace accel
