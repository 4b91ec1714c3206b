#include "worker/agent/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RankEnvironmentTest : public testing::Test {
 protected:
  RankEnvironmentTest() {
    LocalTask task;
    task.resources.cpus = 4;
    task.argv = {"train"};
    task.ranks = {{0, 0, {}}, {1, 1, {}}};
    assignment_.job = "job";
    assignment_.generation = 7;
    assignment_.spec.emplace();
    assignment_.spec->tasks = {task};
    assignment_.cluster.emplace();
    assignment_.cluster->world_size = 2;
    assignment_.cluster->master_address = "10.0.0.1";
    assignment_.cluster->master_port = 2223;
    assignment_.cluster->tasks = {{TaskType::kChief,
                                   0,
                                   "a",
                                   "10.0.0.1:2222",
                                   {{0, 0, {2}}, {1, 1, {3}}}}};
    input_.assignment = &assignment_;
    input_.task = &assignment_.spec->tasks[0];
    input_.rank = 1;
  }
  LocalTask& task() { return assignment_.spec->tasks[0]; }
  Environment Make() { return MakeRankEnvironment(input_); }

  Assignment assignment_;
  RankEnvironmentInput input_;
};

TEST_F(RankEnvironmentTest, OnlyTheAllowListIsInherited) {
  input_.daemon = {{"PATH", "/bin"},       {"LC_ALL", "C"},
                   {"LD_PRELOAD", "x.so"}, {"GRPC_TRACE", "all"},
                   {"SECRET", "s"},        {"CUDA_VISIBLE_DEVICES", "0,1"}};
  const Environment env = Make();
  EXPECT_EQ(env.at("PATH"), "/bin");
  EXPECT_EQ(env.at("LC_ALL"), "C");
  EXPECT_FALSE(env.contains("LD_PRELOAD"));
  EXPECT_FALSE(env.contains("GRPC_TRACE"));
  EXPECT_FALSE(env.contains("SECRET"));
  EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), "3");
}

TEST_F(RankEnvironmentTest, ThreadsFollowTheRanksShareUnlessGiven) {
  EXPECT_EQ(Make().at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(Make().at("OPENBLAS_NUM_THREADS"), "2");
  task().resources.cpus = 0.5;
  EXPECT_EQ(Make().at("OMP_NUM_THREADS"), "1");
  task().resources.cpus = 0;  // Not limited.
  EXPECT_FALSE(Make().contains("OMP_NUM_THREADS"));
  task().environment["OMP_NUM_THREADS"] = "8";
  EXPECT_EQ(Make().at("OMP_NUM_THREADS"), "8");
}

TEST_F(RankEnvironmentTest,
       TheJobsVariablesWinOverDefaultsAndContractsOverAll) {
  task().environment = {{"PYTHONUNBUFFERED", "0"},
                        {"PATH", "/mine"},
                        {"RANK", "99"},
                        {"LOCKSTEP_RANK", "99"}};
  const Environment env = Make();
  EXPECT_EQ(env.at("PYTHONUNBUFFERED"), "0");
  EXPECT_EQ(env.at("PATH"), "/mine");
  EXPECT_EQ(env.at("RANK"), "1");
  EXPECT_EQ(env.at("LOCKSTEP_RANK"), "1");
}

TEST_F(RankEnvironmentTest, TheContractsOfTheFrameworksAreThere) {
  const Environment env = Make();
  EXPECT_THAT(env.at("TF_CONFIG"), HasSubstr("10.0.0.1:2222"));
  EXPECT_EQ(env.at("WORLD_SIZE"), "2");
  EXPECT_EQ(env.at("LOCAL_RANK"), "1");
  EXPECT_EQ(env.at("MASTER_ADDR"), "10.0.0.1");
  EXPECT_EQ(env.at("MASTER_PORT"), "2223");
  EXPECT_EQ(env.at("LOCKSTEP_JOB"), "job");
  EXPECT_EQ(env.at("LOCKSTEP_GENERATION"), "7");
  EXPECT_FALSE(env.contains("LOCKSTEP_LINK"));
}

TEST_F(RankEnvironmentTest, ANativeRankFindsItsLink) {
  input_.link = "/run/l.sock";
  input_.home = "/home/task";
  const Environment env = Make();
  EXPECT_EQ(env.at("LOCKSTEP_LINK"), "/run/l.sock");
  EXPECT_EQ(env.at("LOCKSTEP_NONCE_FD"), "3");
  EXPECT_EQ(env.at("HOME"), "/home/task");
}

TEST_F(RankEnvironmentTest, ATfConfigThatNoVariableHoldsIsLeftOut) {
  for (int i = 0; i < 8000; ++i) {
    assignment_.cluster->tasks.push_back(
        {TaskType::kWorker, i, "b", "10.100.100.100:22222", {}});
  }
  EXPECT_FALSE(Make().contains("TF_CONFIG"));
}

TEST_F(RankEnvironmentTest, StringsThereAndBack) {
  const Environment env = {{"A", "1=2"}, {"B", ""}};
  EXPECT_THAT(ToStrings(env), ElementsAre("A=1=2", "B="));
  EXPECT_EQ(FromStrings({"A=1=2", "B=", "=x", "none"}), env);
}

}  // namespace
}  // namespace lockstep
