#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "launcher/engine.h"
#include "launcher/failure.h"
#include "settings/settings.h"

namespace accel {
namespace {

using Words = std::vector<std::string>;
const std::map<std::string, std::string> kVariables = {{"ACCEL_RUN_ID", "r"},
                                                       {"LD_PRELOAD", "/lib/libaccel.so"}};

TEST(Engine, OpenMpiTakesVariablesByX) {
  EXPECT_EQ(command_for(Engine::OpenMpi, {"mpirun", "-n", "4", "./a"}, kVariables),
            (Words{"mpirun", "-x", "ACCEL_RUN_ID=r", "-x", "LD_PRELOAD=/lib/libaccel.so", "-n", "4", "./a"}));
}

TEST(Engine, HydraTakesVariablesByGenv) {
  EXPECT_EQ(command_for(Engine::Hydra, {"mpiexec", "-n", "4", "./a"}, kVariables),
            (Words{"mpiexec", "-genv", "ACCEL_RUN_ID", "r", "-genv", "LD_PRELOAD", "/lib/libaccel.so", "-n",
                   "4", "./a"}));
}

TEST(Engine, KeepsThePreloadThatRanksAlreadyGet) {
  EXPECT_EQ(command_for(Engine::OpenMpi, {"mpirun", "-x", "LD_PRELOAD=other.so", "./a"}, kVariables),
            (Words{"mpirun", "-x", "ACCEL_RUN_ID=r", "-x", "LD_PRELOAD=/lib/libaccel.so:other.so", "./a"}));
  EXPECT_EQ(command_for(Engine::Hydra, {"mpiexec", "-genv", "LD_PRELOAD", "other.so", "./a"}, kVariables),
            (Words{"mpiexec", "-genv", "ACCEL_RUN_ID", "r", "-genv", "LD_PRELOAD",
                   "/lib/libaccel.so:other.so", "./a"}));
}

TEST(Engine, PlainCommandsStayAsTheyAre) {
  EXPECT_EQ(command_for(Engine::Plain, {"./a", "-n", "4"}, kVariables), (Words{"./a", "-n", "4"}));
}

TEST(Engine, SomeHandOnTheirOwnEnvironment) {
  for (const Engine engine :
       {Engine::Plain, Engine::Torchrun, Engine::Horovod, Engine::Srun, Engine::DeepSpeed})
    EXPECT_EQ(command_for(engine, {"x", "-n", "4", "./a"}, kVariables), (Words{"x", "-n", "4", "./a"}));
  EXPECT_EQ(detect_engine({"/usr/bin/srun", "./a"}), Engine::Srun);
  EXPECT_EQ(detect_engine({"deepspeed"}), Engine::DeepSpeed);
  EXPECT_EQ(detect_engine({"/opt/bin/torchrun"}), Engine::Torchrun);
  EXPECT_EQ(detect_engine({"/usr/bin/python3.11", "-m", "torch.distributed.run", "a.py"}), Engine::Torchrun);
  EXPECT_EQ(detect_engine({"accelerate", "launch", "a.py"}), Engine::Torchrun);
  EXPECT_EQ(detect_engine({"llamafactory-cli", "train", "a.yaml"}), Engine::Torchrun);
  EXPECT_EQ(detect_engine({"/opt/bin/horovodrun", "-np", "2", "./a"}), Engine::Horovod);
  EXPECT_EQ(detect_engine({"python3", "torchrun"}), Engine::Plain);
}

TEST(Engine, ARestartOfTheRanksIsAccelrunsWhileItTriesSizes) {
  std::map<std::string, std::string> variables;
  Words command{"torchrun", "--max-restarts", "3", "--nproc_per_node=2", "a.py", "--max-restarts", "5"};
  EXPECT_EQ(end_at_first_failure(Engine::Torchrun, command, variables), "--max-restarts 3");
  EXPECT_EQ(command,
            (Words{"torchrun", "--max-restarts", "0", "--nproc_per_node=2", "a.py", "--max-restarts", "5"}));
  command = {"accelerate", "launch", "--max_restarts=2", "a.py"};
  EXPECT_EQ(end_at_first_failure(Engine::Torchrun, command, variables), "--max_restarts=2");
  EXPECT_EQ(command, (Words{"accelerate", "launch", "--max_restarts=0", "a.py"}));
  EXPECT_TRUE(variables.empty());

  setenv("MAX_RESTARTS", "4", 1);
  command = {"llamafactory-cli", "train", "a.yaml"};
  EXPECT_EQ(end_at_first_failure(Engine::Torchrun, command, variables), "MAX_RESTARTS=4");
  EXPECT_EQ(variables, (std::map<std::string, std::string>{{"MAX_RESTARTS", "0"}}));
  unsetenv("MAX_RESTARTS");

  variables.clear();
  const Words plain{"./a", "--max-restarts", "3"};
  command = plain;
  EXPECT_EQ(end_at_first_failure(Engine::Plain, command, variables), "");
  EXPECT_EQ(command, plain);
  EXPECT_EQ(end_at_first_failure(Engine::Srun, command, variables), "");
  EXPECT_EQ(variables.at("SLURM_KILL_BAD_EXIT"), "1");
}

TEST(Engine, DeepSpeedsFileKeepsWhatTheUserHasInIt) {
  const std::string file = ::testing::TempDir() + "accel_deepspeed_env";
  std::ofstream(file) << "NCCL_DEBUG=INFO\nLD_PRELOAD=mine.so\n";
  setenv("DS_ENV_FILE", file.c_str(), 1);
  EXPECT_EQ(deepspeed_environment(kVariables),
            "NCCL_DEBUG=INFO\nACCEL_RUN_ID=r\nLD_PRELOAD=/lib/libaccel.so\n");
  unsetenv("DS_ENV_FILE");
}

TEST(Engine, AMissingHostFileIsNamed) {
  try {
    command_for(Engine::OpenMpi, {"mpirun", "--hostfile", "/no/hosts", "./a"}, kVariables);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.status(), 64);
    EXPECT_NE(std::string(failure.what()).find("/no/hosts"), std::string::npos);
  }
  // The program's own words are its own.
  EXPECT_NO_THROW(command_for(Engine::OpenMpi, {"mpirun", "-n", "2", "./a", "-f", "/no/hosts"}, kVariables));
}

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    for (const Variable& variable : variables()) unsetenv(variable.name);
    unsetenv("ACCELERATE_DEBUG_MODE");
    unsetenv("ACCELERATE_LOG_LEVEL");
  }
  ~SettingsTest() override {
    for (const Variable& variable : variables()) unsetenv(variable.name);
    unsetenv("ACCELERATE_DEBUG_MODE");
    unsetenv("ACCELERATE_LOG_LEVEL");
  }
  std::vector<std::string> complaints;
};

TEST_F(SettingsTest, Defaults) {
  const Settings settings = Settings::from_environment(complaints);
  EXPECT_EQ(settings.check, Check::Async);
  EXPECT_EQ(settings.on_error, OnError::Raise);
  EXPECT_EQ(settings.timeout_ns, 600'000'000'000);
  EXPECT_EQ(settings.warn_after_ns, 30'000'000'000);
  EXPECT_TRUE(complaints.empty());
}

TEST_F(SettingsTest, ValuesAndFallbacks) {
  setenv("ACCEL_TIMEOUT", "0.5", 1);
  setenv("ACCELERATE_DEBUG_MODE", "1", 1);
  setenv("ACCELERATE_LOG_LEVEL", "INFO", 1);
  Settings settings = Settings::from_environment(complaints);
  EXPECT_EQ(settings.timeout_ns, 500'000'000);
  EXPECT_EQ(settings.check, Check::Sync);
  EXPECT_EQ(settings.log_level, LogLevel::Info);
  setenv("ACCEL_CHECK", "off", 1);
  settings = Settings::from_environment(complaints);
  EXPECT_EQ(settings.check, Check::Off) << "ours is stronger than Accelerate's";
  EXPECT_TRUE(complaints.empty());
}

TEST_F(SettingsTest, BadValuesAreNamedAndTheDefaultStays) {
  const std::pair<const char*, const char*> bad[] = {
      {"ACCEL_CHECK", "maybe"}, {"ACCEL_TIMEOUT", "-1"},   {"ACCEL_TIMEOUT", "10s"},
      {"ACCEL_TIMEOUT", "nan"}, {"ACCEL_RUN_DIR", "here"}, {"ACCEL_RUN_ID", "../../etc"},
      {"ACCEL_RUN_ID", ".."},   {"ACCEL_STACKS", "1"},
  };
  for (const auto& [name, value] : bad) {
    complaints.clear();
    setenv(name, value, 1);
    const Settings settings = Settings::from_environment(complaints);
    ASSERT_EQ(complaints.size(), 1u) << name << "=" << value;
    EXPECT_NE(complaints[0].find(std::string(name) + "=" + value), std::string::npos);
    EXPECT_NE(complaints[0].find("expected"), std::string::npos);
    EXPECT_EQ(settings.timeout_ns, 600'000'000'000);
    EXPECT_TRUE(settings.run_id.empty());
    unsetenv(name);
  }
}

}  // namespace
}  // namespace accel
