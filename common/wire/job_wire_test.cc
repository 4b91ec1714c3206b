#include "common/wire/job_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/cluster_spec.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

v1::JobSpec Valid() {
  v1::JobSpec spec;
  spec.set_name("mnist");
  spec.set_kind(v1::JOB_KIND_NATIVE);
  spec.add_argv("train");
  v1::RoleSpec* worker = spec.add_roles();
  worker->set_type(v1::TASK_TYPE_WORKER);
  worker->set_count(3);
  v1::RoleSpec* chief = spec.add_roles();
  chief->set_type(v1::TASK_TYPE_CHIEF);
  chief->set_count(1);
  return spec;
}

std::string Complaint(const v1::JobSpec& spec) {
  const auto parsed = FromProto(spec);
  if (parsed.ok()) return "OK";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return Message(parsed.status());
}

TEST(JobWireTest, FillsDefaultsAndSortsRolesIntoRankOrder) {
  const auto spec = FromProto(Valid());
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->roles.size(), 2u);
  EXPECT_EQ(spec->roles[0].type, TaskType::kChief);
  EXPECT_EQ(spec->roles[1].type, TaskType::kWorker);
  EXPECT_EQ(spec->roles[1].ranks_per_task, 1);
  EXPECT_EQ(spec->checkpoint.keep, 3);
  EXPECT_EQ(spec->restart_budget, 3);
  EXPECT_FALSE(spec->max_running_time.has_value());
}

TEST(JobWireTest, ARestartBudgetOfZeroIsNotTheDefault) {
  v1::JobSpec proto = Valid();
  proto.set_restart_budget(0);
  EXPECT_EQ(FromProto(proto)->restart_budget, 0);
}

TEST(JobWireTest, ASpecSurvivesTheWayThereAndBack) {
  v1::JobSpec proto = Valid();
  proto.set_kind(v1::JOB_KIND_PROGRAM);
  v1::RoleSpec* ps = proto.add_roles();
  ps->set_type(v1::TASK_TYPE_PS);
  ps->set_count(2);
  ps->set_ranks_per_task(4);
  ps->add_argv("serve");
  ps->mutable_resources()->set_cpus(0.5);
  ps->mutable_resources()->set_memory_bytes(1 << 30);
  ps->mutable_resources()->set_gpus(4);
  ps->mutable_resources()->set_gpu_type("T4");
  (*ps->mutable_environment())["A"] = "1";
  (*proto.mutable_environment())["B"] = "";
  proto.set_output_directory("/data/out");
  proto.mutable_checkpoint()->set_interval_steps(100);
  proto.mutable_checkpoint()->set_keep(7);
  proto.set_restart_budget(9);
  proto.mutable_max_running_time()->set_seconds(3600);
  proto.mutable_max_wait_time()->set_nanos(5);
  proto.set_priority(1000);
  (*proto.mutable_labels())["team"] = "a";
  proto.set_working_directory("/home/x");
  proto.set_comment("two\nlines");
  proto.set_pool("a100");
  proto.set_empty_tf_config(true);
  const auto spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto again = FromProto(ToProto(*spec));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*spec, *again);
  EXPECT_EQ(spec->max_running_time, Duration(std::chrono::hours(1)));
  EXPECT_EQ(spec->comment, "two\nlines");
  EXPECT_EQ(spec->roles[2].resources.gpu_type, "T4");
}

TEST(JobWireTest, OnlyAProgramLeavesASilentHostByARule) {
  v1::JobSpec proto = Valid();
  proto.set_kind(v1::JOB_KIND_PROGRAM);
  proto.mutable_node_lost_timeout()->set_seconds(10);
  auto spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->node_lost_timeout, std::chrono::seconds(10));
  EXPECT_EQ(*FromProto(ToProto(*spec)), *spec);
  proto.mutable_node_lost_timeout()->set_seconds(9);
  EXPECT_THAT(Complaint(proto),
              HasSubstr("spec.node_lost_timeout: must be 10 s or more"));
  proto.mutable_node_lost_timeout()->set_seconds(60);
  proto.set_node_loss(v1::NODE_LOSS_NEVER);
  EXPECT_THAT(Complaint(proto), HasSubstr("give one of the two"));
  proto.clear_node_lost_timeout();
  spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->node_loss, NodeLoss::kNever);
  proto.set_kind(v1::JOB_KIND_NATIVE);
  EXPECT_THAT(Complaint(proto), HasSubstr("is NATIVE"));
}

TEST(JobWireTest, AnElasticJobHasAsManyTasksAsItNeeds) {
  v1::JobSpec proto = Valid();
  proto.set_kind(v1::JOB_KIND_PROGRAM);
  proto.set_elastic_min_tasks(4);
  const auto spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->elastic_min_tasks, 4);
  EXPECT_EQ(*FromProto(ToProto(*spec)), *spec);
  proto.set_elastic_min_tasks(5);
  EXPECT_THAT(Complaint(proto),
              HasSubstr("spec.elastic_min_tasks: is 5, and the job has 4"));
  proto.set_elastic_min_tasks(1);
  proto.set_kind(v1::JOB_KIND_NATIVE);
  const auto native = FromProto(proto);
  ASSERT_TRUE(native.ok()) << native.status();
  EXPECT_EQ(native->elastic_min_tasks, 1);
}

TEST(JobWireTest, AJobOfSeveralSizesSaysItsLeast) {
  v1::JobSpec proto = Valid();
  proto.set_kind(v1::JOB_KIND_PROGRAM);
  proto.set_rescale(true);
  EXPECT_THAT(Complaint(proto),
              HasSubstr("spec.rescale: needs elastic_min_tasks"));
  proto.set_elastic_min_tasks(2);
  const auto spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->rescale);
  EXPECT_EQ(*FromProto(ToProto(*spec)), *spec);
  proto.set_kind(v1::JOB_KIND_NATIVE);
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.rescale: is for a PROGRAM"));
}

TEST(JobWireTest, OnlyANativeJobHasAReductionPlan) {
  v1::JobSpec proto = Valid();
  proto.set_reduction_plan("lockstep-reduction-plan 1\n");
  const auto spec = FromProto(proto);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->reduction_plan, proto.reduction_plan());
  EXPECT_EQ(*FromProto(ToProto(*spec)), *spec);
  proto.set_reduction_plan(std::string(kMaxReductionPlan + 1, 'x'));
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.reduction_plan"));
  proto.set_reduction_plan("x");
  proto.set_kind(v1::JOB_KIND_PROGRAM);
  EXPECT_THAT(Complaint(proto), HasSubstr("is for NATIVE jobs"));
}

TEST(JobWireTest, ErrorsNameTheFieldByItsPath) {
  v1::JobSpec proto = Valid();
  proto.mutable_roles(1)->set_count(0);
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.roles[1].count: must be 1"));
  proto = Valid();
  proto.mutable_roles(0)->mutable_resources()->set_cpus(-1);
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.roles[0].resources.cpus:"));
  proto = Valid();
  (*proto.mutable_environment())["1A"] = "";
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.environment: \"1A\" is no"));
}

TEST(JobWireTest, ReservedVariablesAreRefused) {
  for (const char* name :
       {"LD_PRELOAD", "TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_PORT",
        "LOCKSTEP_LINK", "CUDA_VISIBLE_DEVICES", "CLOUD_ML_JOB_ID",
        "JAX_COORDINATOR_ADDRESS", "SLURM_PROCID", "TORCHELASTIC_ERROR_FILE"}) {
    v1::JobSpec proto = Valid();
    (*proto.mutable_environment())[name] = "x";
    EXPECT_THAT(Complaint(proto), HasSubstr("is set by lockstep")) << name;
    proto = Valid();
    (*proto.mutable_roles(0)->mutable_environment())[name] = "x";
    EXPECT_THAT(Complaint(proto), HasSubstr("spec.roles[0].environment"));
  }
  // Defaults, that a job may know better.
  for (const char* name : {"OMP_NUM_THREADS", "PYTHONUNBUFFERED",
                           "NCCL_SOCKET_IFNAME", "GRPC_FAIL_FAST"}) {
    EXPECT_FALSE(IsReservedEnvironmentName(name)) << name;
  }
  EXPECT_FALSE(IsReservedEnvironmentName("LDFLAGS"));
}

TEST(JobWireTest, WhateverTellsARankWhoItIsIsReserved) {
  ClusterSpec spec;
  spec.tasks = {{TaskType::kChief, 0, "a", "10.0.0.1:1", {{0, 0, {0}, 0}}}};
  spec.world_size = 1;
  spec.services = {{"jax", "10.0.0.1:2"}};
  spec.environment_options.slurm_environment = true;
  const auto env = RankEnvironment(spec, 0);
  EXPECT_GT(env.size(), 40u);
  for (const auto& [name, value] : env) {
    // Open MPI's are a job's to set: jobs that did are stored already.
    EXPECT_EQ(IsReservedEnvironmentName(name), !name.starts_with("OMPI_"))
        << name;
  }
}

TEST(JobWireTest, APoolHasTheNameOfOne) {
  v1::JobSpec proto = Valid();
  EXPECT_EQ(FromProto(proto)->pool, "");
  proto.set_pool("a100-west");
  EXPECT_EQ(FromProto(proto)->pool, "a100-west");
  for (const char* bad : {"A100", "a_b", "a b"}) {
    proto.set_pool(bad);
    EXPECT_THAT(
        Complaint(proto),
        HasSubstr(fmt::format("spec.pool: \"{}\" is not a pool name", bad)));
  }
  proto.set_pool(std::string(64, 'a'));
  EXPECT_THAT(Complaint(proto), HasSubstr("at most 63"));
}

TEST(JobWireTest, RolesMustMakeAGang) {
  v1::JobSpec proto = Valid();
  proto.clear_roles();
  EXPECT_THAT(Complaint(proto), HasSubstr("needs a chief or a worker"));
  proto = Valid();
  proto.mutable_roles(1)->set_count(2);
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.roles[1].count"));
  proto = Valid();
  proto.mutable_roles(1)->set_type(v1::TASK_TYPE_WORKER);
  EXPECT_THAT(Complaint(proto), HasSubstr("worker is there twice"));
  proto = Valid();
  proto.mutable_roles(0)->set_type(v1::TASK_TYPE_PS);
  EXPECT_THAT(Complaint(proto), HasSubstr("a native job has"));
  proto = Valid();
  proto.clear_argv();
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.roles[0].argv"));
  proto = Valid();
  proto.mutable_roles(0)->set_count(65536);
  EXPECT_THAT(Complaint(proto), HasSubstr("65537 ranks"));
  proto.mutable_roles(0)->set_count(65535);
  EXPECT_EQ(Complaint(proto), "OK");
  proto.set_kind(v1::JOB_KIND_PROGRAM);
  EXPECT_THAT(Complaint(proto), HasSubstr("TF_CONFIG has room"));
}

TEST(JobWireTest, AnArgumentOf128KiBIsRefusedAndOneByteLessIsNot) {
  v1::JobSpec proto = Valid();
  proto.add_argv(std::string(128 * 1024, 'a'));
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.argv[1]: has 131072 bytes"));
  proto.mutable_argv(1)->pop_back();
  EXPECT_EQ(Complaint(proto), "OK");
  (*proto.mutable_environment())["ABC"] = std::string(128 * 1024 - 4, 'a');
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.environment.ABC: has"));
  (*proto.mutable_environment())["ABC"].pop_back();
  EXPECT_EQ(Complaint(proto), "OK");
}

TEST(JobWireTest, DirectoriesAreAbsoluteAndDoNotGoUp) {
  for (const char* path :
       {"out", "./out", "/a/../b", "/..", "/a/b/..", "/a\nb", "../"}) {
    v1::JobSpec proto = Valid();
    proto.set_output_directory(path);
    EXPECT_THAT(Complaint(proto), HasSubstr("spec.output_directory")) << path;
  }
  v1::JobSpec proto = Valid();
  proto.set_output_directory("/a/..b/c..");
  proto.set_working_directory("/");
  EXPECT_EQ(Complaint(proto), "OK");
}

TEST(JobWireTest, LimitsOfTimeAreBounded) {
  v1::JobSpec proto = Valid();
  proto.mutable_max_running_time();
  EXPECT_THAT(Complaint(proto), HasSubstr("longer than 0 s"));
  // Until the year 10000, as the message type would allow.
  proto.mutable_max_running_time()->set_seconds(315'576'000'000);
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.max_running_time.seconds"));
  proto = Valid();
  proto.mutable_max_wait_time()->set_seconds(-1);
  EXPECT_THAT(Complaint(proto), HasSubstr("spec.max_wait_time.seconds"));
}

}  // namespace
}  // namespace lockstep
