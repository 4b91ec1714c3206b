// What each kind of program finds in its environment, literally.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/model/cluster_spec.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::Pair;
using Environment = std::map<std::string, std::string>;

// Ranks 0 to 4: a chief, two workers, a ps, an evaluator; one rank each.
ClusterSpec Everything() {
  ClusterSpec spec;
  spec.job = "mnist_1";
  spec.job_uid = "uid-1";
  spec.generation = 2;
  spec.world_size = 3;
  spec.tasks = {
      {TaskType::kChief, 0, "a", "10.0.0.1:2222", {{0, 0, {}, 0}}},
      {TaskType::kWorker, 0, "b", "10.0.0.2:2223", {{1, 0, {}, 0}}},
      {TaskType::kWorker, 1, "c", "10.0.0.3:2224", {{2, 0, {}, 0}}},
      {TaskType::kPs, 0, "d", "10.0.0.4:2225", {{3, 0, {}, 0}}},
      {TaskType::kEvaluator, 0, "d", "10.0.0.4:2226", {{4, 0, {}, 0}}}};
  spec.master_address = "10.0.0.1";
  spec.master_port = 29500;
  spec.services = {{"jax", "10.0.0.1:1234"}};
  return spec;
}

// Two tasks of two ranks with a GPU each.
ClusterSpec TwoByTwo() {
  ClusterSpec spec = Everything();
  spec.world_size = 4;
  spec.tasks = {{TaskType::kChief,
                 0,
                 "a",
                 "10.0.0.1:2222",
                 {{0, 0, {4}, 0}, {1, 1, {6}, 0}}},
                {TaskType::kWorker,
                 0,
                 "b",
                 "10.0.0.2:2223",
                 {{2, 0, {0}, 0}, {3, 1, {1}, 0}}}};
  return spec;
}

TEST(RankEnvironmentTest, TheFullSizeOfAJobThatMayHaveFewerTasks) {
  ClusterSpec spec = Everything();
  EXPECT_FALSE(RankEnvironment(spec, 0).contains("LOCKSTEP_FULL_SIZE"));
  spec.full_size = 5;
  EXPECT_EQ(RankEnvironment(spec, 2).at("LOCKSTEP_FULL_SIZE"), "5");
  EXPECT_EQ(RankEnvironment(spec, 2).at("WORLD_SIZE"), "3");
  EXPECT_FALSE(RankEnvironment(spec, 3).contains("LOCKSTEP_FULL_SIZE"))
      << "a parameter server is of no group";
}

TEST(RankEnvironmentTest, TensorFlowMultiWorkerWithAChief) {
  ClusterSpec spec = Everything();
  spec.tasks.resize(3);
  EXPECT_EQ(RankEnvironment(spec, 2).at("TF_CONFIG"),
            R"({"cluster":{"chief":["10.0.0.1:2222"],)"
            R"("worker":["10.0.0.2:2223","10.0.0.3:2224"]},)"
            R"("task":{"type":"worker","index":1},"environment":"cloud"})");
  EXPECT_THAT(RankEnvironment(spec, 0).at("TF_CONFIG"),
              HasSubstr(R"("task":{"type":"chief","index":0})"));
}

TEST(RankEnvironmentTest, TensorFlowMultiWorkerOfWorkersOnly) {
  ClusterSpec spec = Everything();
  spec.tasks = {{TaskType::kWorker, 0, "a", "10.0.0.1:2222", {{0, 0, {}, 0}}},
                {TaskType::kWorker, 1, "b", "10.0.0.2:2223", {{1, 0, {}, 0}}}};
  spec.world_size = 2;
  EXPECT_EQ(RankEnvironment(spec, 0).at("TF_CONFIG"),
            R"({"cluster":{"worker":["10.0.0.1:2222","10.0.0.2:2223"]},)"
            R"("task":{"type":"worker","index":0},"environment":"cloud"})");
}

TEST(RankEnvironmentTest, TensorFlowParameterServer) {
  const Environment env = RankEnvironment(Everything(), 3);
  EXPECT_EQ(env.at("TF_CONFIG"),
            R"({"cluster":{"chief":["10.0.0.1:2222"],)"
            R"("worker":["10.0.0.2:2223","10.0.0.3:2224"],)"
            R"("ps":["10.0.0.4:2225"]},)"
            R"("task":{"type":"ps","index":0},"environment":"cloud"})");
}

TEST(RankEnvironmentTest, AnEvaluatorIsNeverInTheCluster) {
  EXPECT_EQ(RankEnvironment(Everything(), 4).at("TF_CONFIG"),
            R"({"cluster":{"chief":["10.0.0.1:2222"],)"
            R"("worker":["10.0.0.2:2223","10.0.0.3:2224"],)"
            R"("ps":["10.0.0.4:2225"]},)"
            R"("task":{"type":"evaluator","index":0},"environment":"cloud"})");
}

TEST(RankEnvironmentTest, PsAndEvaluatorAreOfNoGroup) {
  for (const int32_t rank : {3, 4}) {
    const Environment env = RankEnvironment(Everything(), rank);
    EXPECT_EQ(env.size(), 3u);
    EXPECT_TRUE(env.contains("TF_CONFIG"));
    EXPECT_TRUE(env.contains("CLUSTER_SPEC"));
    EXPECT_EQ(env.at("CLOUD_ML_JOB_ID"), "mnist_1");
  }
}

TEST(RankEnvironmentTest, TensorFlowOnOneHost) {
  ClusterSpec spec = Everything();
  spec.tasks.resize(1);
  spec.world_size = 1;
  EXPECT_EQ(RankEnvironment(spec, 0).at("TF_CONFIG"),
            R"({"cluster":{"chief":["10.0.0.1:2222"]},)"
            R"("task":{"type":"chief","index":0},"environment":"cloud"})");
}

TEST(RankEnvironmentTest, AnAiPlatformProgram) {
  ClusterSpec spec = Everything();
  spec.tasks.resize(2);
  spec.environment_options.tf_config_job =
      R"({"scale_tier":"CUSTOM","worker_count":"1"})";
  const Environment env = RankEnvironment(spec, 1);
  EXPECT_EQ(env.at("TF_CONFIG"),
            R"({"cluster":{"chief":["10.0.0.1:2222"],)"
            R"("worker":["10.0.0.2:2223"]},)"
            R"("task":{"type":"worker","index":0},"environment":"cloud",)"
            R"("job":"{\"scale_tier\":\"CUSTOM\",\"worker_count\":\"1\"}"})");
  EXPECT_EQ(env.at("CLUSTER_SPEC"),
            R"({"cluster":{"master":["10.0.0.1:2222"],)"
            R"("worker":["10.0.0.2:2223"]},)"
            R"("task":{"type":"worker","index":0,"trial":""},)"
            R"("environment":"cloud",)"
            R"("job":"{\"scale_tier\":\"CUSTOM\",\"worker_count\":\"1\"}"})");
  EXPECT_EQ(env.at("CLOUD_ML_JOB_ID"), "mnist_1");
}

TEST(RankEnvironmentTest, TheFirstTaskIsMasterWhereTheJobSaysSo) {
  ClusterSpec spec = Everything();
  spec.tasks.resize(1);
  spec.environment_options.master_in_tf_config = true;
  const Environment env = RankEnvironment(spec, 0);
  EXPECT_EQ(env.at("TF_CONFIG"),
            R"({"cluster":{"master":["10.0.0.1:2222"]},)"
            R"("task":{"type":"master","index":0},"environment":"cloud"})");
  // There it always is.
  spec.environment_options.master_in_tf_config = false;
  EXPECT_EQ(RankEnvironment(spec, 0).at("CLUSTER_SPEC"),
            env.at("CLUSTER_SPEC"));
}

TEST(RankEnvironmentTest, PyTorchByEnvRendezvous) {
  EXPECT_THAT(
      RankEnvironment(TwoByTwo(), 3),
      IsSupersetOf({Pair("MASTER_ADDR", "10.0.0.1"),
                    Pair("MASTER_PORT", "29500"), Pair("RANK", "3"),
                    Pair("WORLD_SIZE", "4"), Pair("LOCAL_RANK", "1"),
                    Pair("LOCAL_WORLD_SIZE", "2"), Pair("GROUP_RANK", "1"),
                    Pair("GROUP_WORLD_SIZE", "2"), Pair("ROLE_NAME", "default"),
                    Pair("ROLE_RANK", "3"), Pair("ROLE_WORLD_SIZE", "4"),
                    Pair("TORCHELASTIC_RUN_ID", "mnist_1")}));
  // There is no store of a launcher's for rank 0 to connect to.
  EXPECT_FALSE(
      RankEnvironment(TwoByTwo(), 0).contains("TORCHELASTIC_USE_AGENT_STORE"));
}

TEST(RankEnvironmentTest, AProgramThatIsTorchrun) {
  ClusterSpec spec = Everything();
  spec.tasks[1].ranks[0].gpus = {0, 1, 2};
  EXPECT_THAT(RankEnvironment(spec, 1),
              IsSupersetOf({Pair("PET_NNODES", "3"), Pair("PET_NODE_RANK", "1"),
                            Pair("PET_NPROC_PER_NODE", "3"),
                            Pair("PET_MASTER_ADDR", "10.0.0.1"),
                            Pair("PET_MASTER_PORT", "29500")}));
  EXPECT_EQ(RankEnvironment(spec, 0).at("PET_NPROC_PER_NODE"), "1");
}

TEST(RankEnvironmentTest, JaxThatIsGivenArguments) {
  EXPECT_THAT(
      RankEnvironment(Everything(), 2),
      IsSupersetOf({Pair("JAX_COORDINATOR_ADDRESS", "10.0.0.1:1234"),
                    Pair("JAX_NUM_PROCESSES", "3"), Pair("JAX_PROCESS_ID", "2"),
                    Pair("COORDINATOR_ADDRESS", "10.0.0.1"),
                    Pair("COORDINATOR_PORT", "1234"),
                    Pair("NUM_PROCESSES", "3"), Pair("PROCESS_ID", "2")}));
  // Positions among the GPUs that the task sees.
  EXPECT_EQ(RankEnvironment(TwoByTwo(), 1).at("JAX_LOCAL_DEVICE_IDS"), "1");
  EXPECT_FALSE(
      RankEnvironment(Everything(), 0).contains("JAX_LOCAL_DEVICE_IDS"));
}

TEST(RankEnvironmentTest, BareJaxFindsOpenMpiAndOpenMpiDoesNot) {
  ClusterSpec spec = TwoByTwo();
  spec.services[std::string(kJaxService)] = "10.0.0.1:1234";
  EXPECT_THAT(RankEnvironment(spec, 3),
              IsSupersetOf({Pair("JAX_COORDINATOR_ADDRESS", "10.0.0.1:1234"),
                            Pair("OMPI_MCA_orte_hnp_uri", ""),
                            Pair("OMPI_COMM_WORLD_SIZE", "4"),
                            Pair("OMPI_COMM_WORLD_RANK", "3"),
                            Pair("OMPI_COMM_WORLD_LOCAL_RANK", "1")}));
}

TEST(RankEnvironmentTest, WithoutTheServiceNothingIsSaidOfJax) {
  ClusterSpec spec = Everything();
  spec.services.clear();
  for (const auto& [name, value] : RankEnvironment(spec, 0)) {
    EXPECT_THAT(name, Not(HasSubstr("JAX")));
    EXPECT_THAT(name, Not(HasSubstr("PROCESS")));
    EXPECT_THAT(name, Not(HasSubstr("OMPI")));
  }
}

TEST(RankEnvironmentTest, BareJaxFindsSlurmWhereTheJobAsksForIt) {
  ClusterSpec spec = TwoByTwo();
  EXPECT_FALSE(RankEnvironment(spec, 0).contains("SLURM_JOB_ID"));
  spec.environment_options.slurm_environment = true;
  const Environment env = RankEnvironment(spec, 3);
  EXPECT_THAT(
      env, IsSupersetOf({Pair("SLURM_PROCID", "3"), Pair("SLURM_NTASKS", "4"),
                         Pair("SLURM_LOCALID", "1"), Pair("SLURM_NODEID", "1"),
                         Pair("SLURM_NNODES", "2"),
                         Pair("SLURM_STEP_NUM_NODES", "2"),
                         Pair("SLURM_NTASKS_PER_NODE", "2"),
                         Pair("SLURM_STEP_NODELIST", "10.0.0.1,10.0.0.2"),
                         Pair("SLURM_JOB_NODELIST", "10.0.0.1,10.0.0.2"),
                         Pair("SLURM_NODELIST", "10.0.0.1,10.0.0.2"),
                         Pair("SLURM_GPUS_ON_NODE", "2"),
                         Pair("JAX_COORDINATOR_PORT", "1234")}));
  const std::string id = env.at("SLURM_JOB_ID");
  EXPECT_GT(std::stol(id), 0);
  EXPECT_EQ(env.at("SLURM_JOBID"), id);
  EXPECT_EQ(RankEnvironment(spec, 0).at("SLURM_JOB_ID"), id);
  spec.job_uid = "uid-2";
  EXPECT_NE(RankEnvironment(spec, 0).at("SLURM_JOB_ID"), id);
}

TEST(RankEnvironmentTest, SlurmsListHasNoBracketsOfIpv6) {
  ClusterSpec spec = Everything();
  spec.environment_options.slurm_environment = true;
  spec.tasks[0].address = "[fd00::1]:2222";
  EXPECT_EQ(RankEnvironment(spec, 0).at("SLURM_STEP_NODELIST"),
            "a,10.0.0.2,10.0.0.3");
}

TEST(RankEnvironmentTest, OneThatTrainsAloneHasNoCluster) {
  ClusterSpec spec = Everything();
  spec.tasks.resize(1);
  spec.world_size = 1;
  spec.environment_options.tf_config_job = "{}";
  spec.environment_options.empty_tf_config = true;
  const Environment env = RankEnvironment(spec, 0);
  EXPECT_EQ(env.at("TF_CONFIG"),
            R"({"cluster":{},"task":{},"environment":"cloud","job":"{}"})");
  EXPECT_THAT(env.at("CLUSTER_SPEC"), HasSubstr(R"("type":"master")"))
      << "its readers look for the key";
}

TEST(RankEnvironmentTest, Xgboost) {
  EXPECT_THAT(
      RankEnvironment(Everything(), 1),
      IsSupersetOf({Pair("DMLC_TRACKER_URI", "10.0.0.1"),
                    Pair("DMLC_TRACKER_PORT", "29500"),
                    Pair("DMLC_TASK_ID", "1"), Pair("DMLC_NUM_WORKER", "3")}));
}

TEST(RankEnvironmentTest, NoVariableIsLongerThanLinuxTakes) {
  constexpr size_t kMost = 128 * 1024 - 1;
  ClusterSpec spec = Everything();
  spec.tasks.resize(1);
  for (int i = 0; i < 5000; ++i) {
    spec.tasks.push_back({TaskType::kWorker,
                          i,
                          "b",
                          "100.100.100.100:22222",
                          {{i + 1, 0, {}, 0}}});
  }
  spec.environment_options.slurm_environment = true;
  spec.environment_options.tf_config_job = std::string(20'000, 'j');
  Environment env = RankEnvironment(spec, 5000);
  // "job" is what nobody needs.
  EXPECT_FALSE(nlohmann::json::parse(env.at("TF_CONFIG")).contains("job"));
  for (const auto& [name, value] : env) {
    EXPECT_LT(name.size() + 1 + value.size(), kMost) << name;
  }
  for (int i = 5000; i < 12'000; ++i) {
    spec.tasks.push_back(
        {TaskType::kWorker, i, "b", "100.100.100.100:22222", {}});
  }
  env = RankEnvironment(spec, 5000);
  EXPECT_FALSE(env.contains("TF_CONFIG"));
  EXPECT_FALSE(env.contains("CLUSTER_SPEC"));
  EXPECT_EQ(env.at("SLURM_NODELIST"), "10.0.0.1");
  EXPECT_EQ(env.at("RANK"), "5000");
}

TEST(RankEnvironmentTest, BytesThatAreNoTextDoNoHarm) {
  ClusterSpec spec = Everything();
  spec.environment_options.tf_config_job = "\xff\"";
  EXPECT_TRUE(nlohmann::json::accept(RankEnvironment(spec, 0).at("TF_CONFIG")));
}

TEST(RankEnvironmentTest, ARankOfNobodyHasNone) {
  EXPECT_TRUE(RankEnvironment(Everything(), 5).empty());
}

}  // namespace
}  // namespace lockstep
