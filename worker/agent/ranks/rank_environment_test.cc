#include "worker/agent/ranks/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "common/base/file.h"
#include "worker/agent/host/data_interface.h"

namespace lockstep::worker::agent {
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

TEST_F(RankEnvironmentTest, ARankOfAProgramFindsTheFileOfItsLink) {
  input_.link_file = "/state/rank-0/link/file";
  const Environment env = Make();
  EXPECT_EQ(env.at("LOCKSTEP_LINK_FILE"), "/state/rank-0/link/file");
  EXPECT_FALSE(env.contains("LOCKSTEP_LINK"));
  EXPECT_FALSE(env.contains("LOCKSTEP_NONCE_FD"));
}

TEST_F(RankEnvironmentTest, PyTorchsFlightRecorderWritesWhereItIsLookedFor) {
  EXPECT_FALSE(Make().contains("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"));
  input_.flight_directory = "/state/rank-0/work";
  const Environment env = Make();
  EXPECT_EQ(env.at("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
            "/state/rank-0/work/.lockstep-flight-pipe-");
  EXPECT_EQ(env.at("TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
            "/state/rank-0/work/.lockstep-flight-dump-");
  task().environment["TORCH_FR_DUMP_TEMP_FILE"] = "/mine/trace_";
  EXPECT_FALSE(Make().contains("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"))
      << "the job has its own";
}

TEST_F(RankEnvironmentTest, ProxiesAreInheritedOnlyWhereTheJobAsksForThem) {
  input_.daemon = {{"http_proxy", "http://p:1"}, {"HTTPS_PROXY", "http://p:1"},
                   {"no_proxy", ".site"},        {"LD_PRELOAD", "x.so"},
                   {"NOTIFY_SOCKET", "@n"},      {"LOCKSTEP_TOKEN", "t"}};
  Environment env = Make();
  EXPECT_FALSE(env.contains("http_proxy"));
  EXPECT_FALSE(env.contains("HTTPS_PROXY"));
  EXPECT_FALSE(env.contains("no_proxy"));
  assignment_.spec->inherited_environment = {"http_proxy",     "no_proxy",
                                             "LD_PRELOAD",     "NOTIFY_SOCKET",
                                             "LOCKSTEP_TOKEN", "not_there"};
  env = Make();
  EXPECT_EQ(env.at("http_proxy"), "http://p:1");
  EXPECT_FALSE(env.contains("HTTPS_PROXY"));
  EXPECT_FALSE(env.contains("LD_PRELOAD"));
  EXPECT_FALSE(env.contains("NOTIFY_SOCKET"));
  EXPECT_FALSE(env.contains("LOCKSTEP_TOKEN"));
  EXPECT_FALSE(env.contains("not_there"));
  // The gang's own hosts are not for the proxy.
  EXPECT_EQ(env.at("no_proxy"), ".site,10.0.0.1,127.0.0.1,localhost");
  EXPECT_EQ(env.at("NO_PROXY"), "10.0.0.1,127.0.0.1,localhost");
}

TEST_F(RankEnvironmentTest, NativeRanksHearWhereTheEnginesLibrariesLie) {
  input_.daemon = {{"LOCKSTEP_MODULE_DIR", "/opt/modules"},
                   {"LOCKSTEP_NCCL_LIBRARY", "/opt/libnccl.so.2"},
                   {"LOCKSTEP_KEY", "k"}};
  const Environment program = Make();
  EXPECT_FALSE(program.contains("LOCKSTEP_MODULE_DIR"));
  EXPECT_FALSE(program.contains("LOCKSTEP_NCCL_LIBRARY"));
  input_.link = "/run/l.sock";
  const Environment native = Make();
  EXPECT_EQ(native.at("LOCKSTEP_MODULE_DIR"), "/opt/modules");
  EXPECT_EQ(native.at("LOCKSTEP_NCCL_LIBRARY"), "/opt/libnccl.so.2");
  EXPECT_FALSE(native.contains("LOCKSTEP_KEY"));
}

TEST_F(RankEnvironmentTest, AJobGetsNoMoreThanTheHostsOwnerAllows) {
  input_.daemon = {{"AWS_SECRET_ACCESS_KEY", "s"},
                   {"KRB5CCNAME", "/c"},
                   {"NCCL_DEBUG", "INFO"},
                   {"NCCL_IB_HCA", "mlx5"},
                   {"ALL_PROXY", "http://p:1"},
                   {"LD_PRELOAD", "x.so"},
                   {"LISTEN_FDS", "1"},
                   {"LOCKSTEP_TOKEN", "t"}};
  for (const auto& [name, value] : input_.daemon) {
    assignment_.spec->inherited_environment.push_back(name);
  }
  Environment env = Make();
  EXPECT_TRUE(env.contains("ALL_PROXY"));
  EXPECT_FALSE(env.contains("AWS_SECRET_ACCESS_KEY"));
  EXPECT_FALSE(env.contains("KRB5CCNAME"));
  EXPECT_FALSE(env.contains("NCCL_DEBUG"));
  input_.inherit = {"NCCL_*", "KRB5CCNAME"};
  env = Make();
  EXPECT_FALSE(env.contains("ALL_PROXY"));
  EXPECT_FALSE(env.contains("AWS_SECRET_ACCESS_KEY"));
  EXPECT_EQ(env.at("KRB5CCNAME"), "/c");
  EXPECT_EQ(env.at("NCCL_DEBUG"), "INFO");
  EXPECT_EQ(env.at("NCCL_IB_HCA"), "mlx5");
  input_.inherit = {"*"};
  env = Make();
  EXPECT_TRUE(env.contains("AWS_SECRET_ACCESS_KEY"));
  EXPECT_FALSE(env.contains("LD_PRELOAD"));
  EXPECT_FALSE(env.contains("LISTEN_FDS"));
  EXPECT_FALSE(env.contains("LOCKSTEP_TOKEN"));
  // What is allowed is not given unasked.
  assignment_.spec->inherited_environment.clear();
  EXPECT_FALSE(Make().contains("AWS_SECRET_ACCESS_KEY"));
}

TEST_F(RankEnvironmentTest, WhatMayBeInheritedIsNames) {
  EXPECT_TRUE(CheckInherit(DefaultInherit()).ok());
  EXPECT_TRUE(CheckInherit({"*", "A", "A_*"}).ok());
  for (const char* bad : {"", "A=1", "*A", "A B", "A**"}) {
    EXPECT_EQ(CheckInherit({bad}).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(RankEnvironmentTest, TheDataInterfaceIsNamedExactlyUnlessTheJobDoes) {
  EXPECT_FALSE(Make().contains("NCCL_SOCKET_IFNAME"));
  input_.data_interface = "eth0";
  EXPECT_EQ(Make().at("NCCL_SOCKET_IFNAME"), "=eth0");
  EXPECT_EQ(Make().at("GLOO_SOCKET_IFNAME"), "eth0");
  task().environment["NCCL_SOCKET_IFNAME"] = "ib0";
  EXPECT_EQ(Make().at("NCCL_SOCKET_IFNAME"), "ib0");
}

TEST_F(RankEnvironmentTest, AProgramSeesItsTasksGpusAndANativeRankItsOwn) {
  EXPECT_EQ(Make().at("CUDA_VISIBLE_DEVICES"), "3");
  assignment_.spec->kind = JobKind::kProgram;
  EXPECT_EQ(Make().at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_EQ(Make().at("LOCAL_RANK"), "1");
  EXPECT_EQ(Make().at("JAX_LOCAL_DEVICE_IDS"), "1");
  EXPECT_EQ(Make().at("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
  for (TaskSpec& task : assignment_.cluster->tasks) {
    for (RankSpec& rank : task.ranks) rank.gpus.clear();
  }
  EXPECT_EQ(Make().at("CUDA_VISIBLE_DEVICES"), "");
}

TEST_F(RankEnvironmentTest, TorchelasticsCountsAndItsErrorFile) {
  assignment_.spec->restart_count = 2;
  assignment_.spec->restart_budget = 5;
  task().restarts = 1;
  input_.error_file = "/w/error.json";
  EXPECT_EQ(Make().at("TORCHELASTIC_RESTART_COUNT"), "3");
  EXPECT_EQ(Make().at("TORCHELASTIC_MAX_RESTARTS"), "5");
  EXPECT_EQ(Make().at("TORCHELASTIC_ERROR_FILE"), "/w/error.json");
  EXPECT_EQ(Make().at("TORCHELASTIC_RUN_ID"), "");  // The spec has no name.
  assignment_.cluster->tasks[0].type = TaskType::kEvaluator;
  EXPECT_FALSE(Make().contains("TORCHELASTIC_RESTART_COUNT"));
  EXPECT_FALSE(Make().contains("TORCHELASTIC_RUN_ID"));
  EXPECT_TRUE(Make().contains("TORCHELASTIC_ERROR_FILE"));
}

TEST_F(RankEnvironmentTest, ServersOfAParameterServerJobHearOfLostPeers) {
  assignment_.spec->kind = JobKind::kProgram;
  task().type = TaskType::kWorker;
  EXPECT_FALSE(Make().contains("GRPC_FAIL_FAST"));
  assignment_.cluster->tasks.push_back(
      {TaskType::kPs, 0, "a", "10.0.0.1:2223", {{2, 0, {}, 0}}});
  EXPECT_EQ(Make().at("GRPC_FAIL_FAST"), "use_caller");
  task().type = TaskType::kPs;
  EXPECT_EQ(Make().at("GRPC_FAIL_FAST"), "use_caller");
  task().type = TaskType::kChief;
  EXPECT_FALSE(Make().contains("GRPC_FAIL_FAST"));
}

TEST(DataInterfaceTest, TheLoopbacksIsFoundAndAStrangersIsNot) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("127.9.9.9"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.1"), "");  // For documentation: RFC 5737.
  EXPECT_EQ(InterfaceOf("not an address"), "");
}

TEST_F(RankEnvironmentTest, TheDocumentNamesEachVariable) {
  const char* source = getenv("LOCKSTEP_SOURCE");
  if (source == nullptr) GTEST_SKIP() << "LOCKSTEP_SOURCE is not set";
  const auto text =
      RealFileSystem()->Read(std::string(source) + "/docs/environment.md");
  ASSERT_TRUE(text.ok()) << text.status();
  assignment_.cluster->services = {{"jax", "10.0.0.1:2"}};
  assignment_.cluster->environment_options.slurm_environment = true;
  assignment_.cluster->tasks.push_back(
      {TaskType::kPs, 0, "a", "10.0.0.1:2223", {{2, 0, {}, 0}}});
  assignment_.cluster->full_size = 3;
  assignment_.spec->output_directory = "/out";
  task().type = TaskType::kWorker;
  input_.daemon = {{"HOME", "/"}, {"TZ", "UTC"}};
  input_.data_interface = "eth0";
  input_.error_file = "/e";
  input_.link = "/l";
  for (const auto& [name, value] : Make()) {
    EXPECT_THAT(*text, HasSubstr("`" + name + "`"));
  }
}

TEST_F(RankEnvironmentTest, StringsThereAndBack) {
  const Environment env = {{"A", "1=2"}, {"B", ""}};
  EXPECT_THAT(ToStrings(env), ElementsAre("A=1=2", "B="));
  EXPECT_EQ(FromStrings({"A=1=2", "B=", "=x", "none"}), env);
}

}  // namespace
}  // namespace lockstep::worker::agent
