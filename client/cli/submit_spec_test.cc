#include "client/cli/submit_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/describe_spec.h"
#include "client/cli/forward.h"
#include "client/cli/interactive.h"
#include "common/model/names.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

CliEnvironment Env() {
  CliEnvironment env;
  env.variables = {{"HOME", "/home/ann"}, {"TOKEN", "t"}};
  env.working_directory = "/work";
  return env;
}

SubmitFlags Program(std::vector<std::string> program) {
  SubmitFlags flags;
  flags.program = std::move(program);
  return flags;
}

TEST(SubmitSpecTest, DefaultsOfAProgram) {
  const auto spec =
      BuildSpec(Program({"./train.py", "x"}), {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "train-abc123");
  EXPECT_EQ(spec->kind(), v1::JOB_KIND_PROGRAM);
  EXPECT_EQ(spec->argv(0), "/work/train.py");
  EXPECT_EQ(spec->output_directory(), "");
  ASSERT_EQ(spec->roles_size(), 1);
  EXPECT_EQ(spec->roles(0).type(), v1::TASK_TYPE_CHIEF);
  EXPECT_EQ(spec->roles(0).resources().cpus(), 1);
  EXPECT_FALSE(spec->has_restart_budget());
}

TEST(SubmitSpecTest, RanksMayStartInTheOutputDirectory) {
  SubmitFlags flags = Program({"./train.py"});
  flags.working_directory = "output";
  const auto refused = BuildSpec(flags, {}, Env(), "abc123");
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused.status()), HasSubstr("give --output DIR"));
  flags.output = "out";
  EXPECT_EQ(BuildSpec(flags, {}, Env(), "abc123")->working_directory(),
            "/work/out");
  // A folder of that name.
  flags.working_directory = "./output";
  EXPECT_EQ(BuildSpec(flags, {}, Env(), "abc123")->working_directory(),
            "/work/output");
}

TEST(SubmitSpecTest, DefaultsOfTheTrainer) {
  SubmitFlags flags = Program({"lockstep-train"});
  flags.tasks = 3;
  flags.ranks_per_task = 2;
  const auto spec = BuildSpec(flags, {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->kind(), v1::JOB_KIND_NATIVE);
  EXPECT_EQ(spec->argv(0), "lockstep-train");
  EXPECT_EQ(spec->output_directory(),
            "/home/ann/lockstep/lockstep-train-abc123");
  ASSERT_EQ(spec->roles_size(), 2);
  EXPECT_EQ(spec->roles(1).type(), v1::TASK_TYPE_WORKER);
  EXPECT_EQ(spec->roles(1).count(), 2);
  EXPECT_EQ(spec->roles(1).resources().cpus(), 2);
}

TEST(SubmitSpecTest, FlagsWinOverTheFile) {
  v1::JobSpec file;
  file.set_name("file");
  file.set_output_directory("/out/file");
  file.set_priority(5);
  file.add_argv("prog");
  (*file.mutable_environment())["A"] = "1";
  v1::RoleSpec* const chief = file.add_roles();
  chief->set_type(v1::TASK_TYPE_CHIEF);
  chief->set_count(1);
  chief->mutable_resources()->set_cpus(4);
  SubmitFlags flags;
  flags.tasks = 2;
  flags.memory = "1GiB";
  flags.output = "here";
  flags.env = {"A=2", "TOKEN", "B=x=y"};
  flags.labels = {"team=vision"};
  flags.max_running_time = "2h";
  flags.restart_budget = 0;
  flags.pool = "a100";
  const auto spec = BuildSpec(flags, file, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name(), "file");
  EXPECT_EQ(spec->priority(), 5);
  EXPECT_EQ(spec->output_directory(), "/work/here");
  EXPECT_EQ(spec->pool(), "a100");
  EXPECT_EQ(spec->environment().at("A"), "2");
  EXPECT_EQ(spec->environment().at("TOKEN"), "t");
  EXPECT_EQ(spec->environment().at("B"), "x=y");
  EXPECT_EQ(spec->labels().at("team"), "vision");
  EXPECT_EQ(spec->max_running_time().seconds(), 7200);
  EXPECT_TRUE(spec->has_restart_budget());
  ASSERT_EQ(spec->roles_size(), 2);
  // The worker is like the chief where the file has none.
  EXPECT_EQ(spec->roles(1).resources().cpus(), 4);
  EXPECT_EQ(spec->roles(1).resources().memory_bytes(), 1ll << 30);
}

TEST(SubmitSpecTest, RuleOfTheEnd) {
  SubmitFlags flags;
  flags.program = {"prog"};
  auto spec = BuildSpec(flags, {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->end_with(), v1::END_WITH_UNSPECIFIED) << "the server's";
  EXPECT_FALSE(spec->has_end_grace());
  flags.end_with = "chief";
  flags.end_grace = "90s";
  spec = BuildSpec(flags, {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->end_with(), v1::END_WITH_CHIEF);
  EXPECT_EQ(spec->end_grace().seconds(), 90);
  flags.end_with = "none";
  EXPECT_FALSE(BuildSpec(flags, {}, Env(), "abc123").ok());
}

TEST(SubmitSpecTest, WhatWaitsForALostRank) {
  SubmitFlags flags = Program({"python", "train.py"});
  flags.warm_starts = true;
  flags.spares = 2;
  flags.hold = "90s";
  flags.elastic = 1;
  const auto spec = BuildSpec(flags, {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->warm_starts());
  EXPECT_EQ(spec->spares(), 2);
  EXPECT_EQ(spec->hold().seconds(), 90);
  EXPECT_EQ(spec->elastic_min_tasks(), 1);
  EXPECT_FALSE(spec->rescale());
  flags.rescale = true;
  EXPECT_TRUE(BuildSpec(flags, {}, Env(), "abc123")->rescale());
  EXPECT_THAT(SpecRows(*spec), HasSubstr("1 m 30 s"));
  v1::Job job;
  *job.mutable_spec() = *spec;
  EXPECT_THAT(SparesRow(job), HasSubstr("2, none held"));
  job.add_spare_nodes("node-7");
  EXPECT_THAT(SparesRow(job), HasSubstr("2, held: node-7"));
}

TEST(SubmitSpecTest, TheSizeOfAJobThatMayHaveFewerTasks) {
  SubmitFlags flags = Program({"python", "train.py"});
  flags.tasks = 4;
  flags.elastic = 2;
  v1::Job job;
  *job.mutable_spec() = *BuildSpec(flags, {}, Env(), "abc123");
  EXPECT_EQ(SizeRow(job), "") << "it has one size";
  job.mutable_spec()->set_rescale(true);
  EXPECT_THAT(SpecRows(job.spec()), Not(HasSubstr("complete tasks")));
  job.add_tasks()->set_type(v1::TASK_TYPE_CHIEF);
  job.add_tasks()->set_type(v1::TASK_TYPE_WORKER);
  job.add_tasks()->set_type(v1::TASK_TYPE_WORKER);
  job.add_tasks()->set_type(v1::TASK_TYPE_PS);
  EXPECT_THAT(SizeRow(job), HasSubstr("3 of 4 tasks; may run with 2 to 4\n"));
  job.set_wanted_tasks(3);
  EXPECT_THAT(SizeRow(job), HasSubstr("2 to 4; resized to 3"));
}

TEST(SubmitSpecTest, WhenAProgramLeavesASilentHost) {
  const auto built = [&](const std::string& when) {
    SubmitFlags flags = Program({"./a"});
    flags.node_lost_timeout = when;
    return BuildSpec(flags, {}, Env(), "abc123");
  };
  EXPECT_EQ(built("auto")->node_loss(), v1::NODE_LOSS_AUTO);
  EXPECT_EQ(built("never")->node_loss(), v1::NODE_LOSS_NEVER);
  EXPECT_EQ(built("90s")->node_lost_timeout().seconds(), 90);
  EXPECT_THAT(SpecRows(*built("90s")), HasSubstr("after 1 m 30 s"));
  EXPECT_THAT(SpecRows(*built("never")), HasSubstr("never"));
  const auto refused = built("soon");
  EXPECT_THAT(Message(refused.status()),
              HasSubstr("--node-lost-timeout: \"soon\" is neither auto nor "
                        "never nor a time"));
}

TEST(SubmitSpecTest, WorkersWithoutAChief) {
  SubmitFlags flags = Program({"a"});
  flags.workers = 3;
  flags.slurm_env = true;
  const auto spec = BuildSpec(flags, {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  ASSERT_EQ(spec->roles_size(), 1);
  EXPECT_EQ(spec->roles(0).type(), v1::TASK_TYPE_WORKER);
  EXPECT_EQ(spec->roles(0).count(), 3);
  EXPECT_EQ(spec->roles(0).resources().cpus(), 1);
  EXPECT_TRUE(spec->slurm_environment());
  // Of a file the chief's resources stay, where it has no worker.
  v1::JobSpec file;
  v1::RoleSpec* const chief = file.add_roles();
  chief->set_type(v1::TASK_TYPE_CHIEF);
  chief->mutable_resources()->set_cpus(4);
  file.add_roles()->set_type(v1::TASK_TYPE_PS);
  flags.slurm_env = false;
  const auto from_file = BuildSpec(flags, file, Env(), "abc123");
  ASSERT_TRUE(from_file.ok()) << from_file.status();
  ASSERT_EQ(from_file->roles_size(), 2);
  EXPECT_EQ(from_file->roles(0).type(), v1::TASK_TYPE_WORKER);
  EXPECT_EQ(from_file->roles(0).resources().cpus(), 4);
  EXPECT_EQ(from_file->roles(1).type(), v1::TASK_TYPE_PS);
  EXPECT_FALSE(from_file->slurm_environment());
}

TEST(SubmitSpecTest, ErrorsNameTheFlag) {
  const auto error = [](const SubmitFlags& flags) {
    return Message(BuildSpec(flags, {}, Env(), "abc123").status());
  };
  EXPECT_THAT(error({}), HasSubstr("no program"));
  SubmitFlags both = Program({"a"});
  both.tasks = 2;
  both.workers = 2;
  EXPECT_THAT(error(both), HasSubstr("--tasks and --workers exclude"));
  SubmitFlags flags = Program({"a"});
  flags.memory = "much";
  EXPECT_THAT(error(flags), HasSubstr("--memory"));
  flags = Program({"a"});
  flags.env = {"UNSET"};
  EXPECT_THAT(error(flags), HasSubstr("--env UNSET"));
  flags = Program({"a"});
  flags.max_wait_time = "soon";
  EXPECT_THAT(error(flags), HasSubstr("--max-wait-time"));
}

TEST(SubmitSpecTest, AnyProgramMakesAJobName) {
  for (const char* program :
       {"/usr/bin/python3.11", "9lives", ".hidden", "ä", "a b", "x"}) {
    const auto spec = BuildSpec(Program({program}), {}, Env(), "abc123");
    ASSERT_TRUE(spec.ok());
    EXPECT_TRUE(IsJobName(spec->name())) << spec->name();
  }
}

TEST(RelativeDataNoteTest, SaysWhatWouldBeFound) {
  CliEnvironment env;
  env.working_directory = "/home/ann";
  v1::JobSpec spec;
  for (const char* arg :
       {"lockstep-train", "--train", "./data", "--eval=/eval"}) {
    spec.add_argv(arg);
  }
  EXPECT_EQ(RelativeDataNote(spec, env),
            "note: ranks start in their own folders, where --train ./data "
            "is not found; give /home/ann/data or --working-directory DIR\n");
  spec.set_working_directory("/home/ann");
  EXPECT_EQ(RelativeDataNote(spec, env), "");
  spec.clear_working_directory();
  spec.set_argv(0, "prog");
  EXPECT_EQ(RelativeDataNote(spec, env), "");
}

TEST(ContainerPathsNoteTest, SaysThatTheImagesDirectoryIsNotKept) {
  v1::JobSpec spec;
  spec.add_roles()->set_type(v1::TASK_TYPE_CHIEF);
  EXPECT_EQ(ContainerPathsNote(spec), "");
  spec.add_roles()->mutable_container()->set_image("x:1");
  EXPECT_EQ(ContainerPathsNote(spec),
            "note: ranks start in the image's working directory, and what they "
            "write to relative paths is lost with the container; give "
            "--workdir DIR of the nodes, or --workdir output\n");
  spec.set_working_directory("/srv");
  EXPECT_EQ(ContainerPathsNote(spec), "");
}

TEST(SubmitSpecTest, AnInteractiveJobWaitsForItsProgram) {
  auto spec = BuildSpec(Program({"python3", "-i"}), {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  const auto program = MakeInteractive(&*spec);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(*program, ::testing::ElementsAre("python3", "-i"));
  EXPECT_EQ(spec->argv(0), "sh");
  EXPECT_EQ(spec->hang(), v1::HANG_POLICY_OFF);
  EXPECT_EQ(spec->restart_budget(), 0);
  EXPECT_EQ(spec->idle_stop().seconds(), kInteractiveIdleSeconds);
  SubmitFlags several = Program({"python3"});
  several.tasks = 2;
  several.idle_stop = "5m";
  spec = BuildSpec(several, {}, Env(), "abc123");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_THAT(Message(MakeInteractive(&*spec).status()),
              HasSubstr("the job has 2 ranks"));
}

TEST(PortPairTest, TheLocalPortMayBeLeftOut) {
  const auto parsed = [](const std::string& text) {
    const auto pair = ParsePortPair(text);
    return pair.ok() ? std::to_string(pair->local) + ">" +
                           std::to_string(pair->remote)
                     : Message(pair.status());
  };
  EXPECT_EQ(parsed("6006"), "6006>6006");
  EXPECT_EQ(parsed("8080:80"), "8080>80");
  EXPECT_EQ(parsed(":80"), "0>80");
  for (const char* wrong : {"", ":", "80:", "0", "65536", "1:2:3", "-1", "x"}) {
    EXPECT_THAT(parsed(wrong), HasSubstr("is not a port")) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::cli
