// `lockstep run` and what it makes of torchrun's command line.
#include <gmock/gmock.h>

#include <thread>
#include <utility>

#include "client/cli/cli_fixture.h"
#include "client/cli/run_spec.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RunTest : public CliTest {
 protected:
  v1::JobSpec Submitted() {
    const FakeAnswers answers = server_->Answers();
    EXPECT_FALSE(answers.submits.empty());
    return answers.submits.empty() ? v1::JobSpec()
                                   : answers.submits.back().spec();
  }
  // The job will be there, ended.
  void Serve(const std::string& name, v1::JobState state) {
    server_->Update([&](FakeAnswers* a) { a->jobs = {Ended(name, state)}; });
  }
};

TEST_F(RunTest, TakesTorchrunsCommandLine) {
  Serve("a", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"run", "--name", "a", "--nnodes", "2", "--nproc_per_node=3",
                 "--max-restarts", "4", "--rdzv-backend", "c10d", "--slurm-env",
                 "train.py", "--epochs", "5", "--", "--nnodes", "7"}),
            0)
      << err_.str();
  const v1::JobSpec spec = Submitted();
  EXPECT_THAT(spec.argv(), ElementsAre("python3", "-u", "train.py", "--epochs",
                                       "5", "--", "--nnodes", "7"));
  ASSERT_EQ(spec.roles_size(), 2);
  EXPECT_EQ(spec.roles(0).type(), v1::TASK_TYPE_CHIEF);
  EXPECT_EQ(spec.roles(1).count(), 1);
  EXPECT_EQ(spec.roles(1).ranks_per_task(), 3);
  EXPECT_EQ(spec.roles(0).resources().cpus(), 3);
  EXPECT_EQ(spec.restart_budget(), 4);
  EXPECT_EQ(spec.kind(), v1::JOB_KIND_PROGRAM);
  EXPECT_TRUE(spec.slurm_environment());
  EXPECT_EQ(spec.working_directory(), dir_);
  EXPECT_THAT(err_.str(), HasSubstr("note: --rdzv-backend: is not used"));
  EXPECT_THAT(err_.str(), HasSubstr("2 tasks, 6 ranks"));
}

TEST_F(RunTest, RedrawsABarOnATerminal) {
  Serve("a", v1::JOB_STATE_SUCCEEDED);
  v1::LogLine bar;
  bar.set_stream("stderr");
  bar.set_text("50%");
  bar.set_partial(true);
  v1::LogLine line;
  line.set_stream("stdout");
  line.set_text("loss 1");
  server_->Update([&](FakeAnswers* a) { a->lines = {bar, line}; });
  env_.err = &out_;
  env_.out_is_tty = env_.err_is_tty = true;
  EXPECT_EQ(Run({"run", "--name", "a", "train.py"}), 0) << out_.str();
  EXPECT_TRUE(server_->Answers().log_requests.at(0).partial_lines());
  EXPECT_THAT(out_.str(), HasSubstr("\r\x1b[K50%\r\x1b[Kloss 1\n50%\n"));
}

TEST_F(RunTest, AScriptIsFoundFromAnotherWorkingDirectory) {
  RunFlags flags;
  flags.job.output = "/srv/out";
  flags.job.working_directory = "output";
  const auto run = BuildRun(flags, {"train.py", "in"}, env_, "abc");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->spec.working_directory(), "/srv/out");
  EXPECT_THAT(run->spec.argv(),
              ElementsAre("python3", "-u", dir_ + "/train.py", "in"));
}

TEST_F(RunTest, RunsModulesAndPrograms) {
  env_.variables["VIRTUAL_ENV"] = "/home/ann/venv";
  RunFlags flags;
  flags.module = true;
  auto run = BuildRun(flags, {"trainer.task", "-x"}, env_, "abc");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->spec.argv(), ElementsAre("/home/ann/venv/bin/python3", "-u",
                                            "-m", "trainer.task", "-x"));
  EXPECT_EQ(run->spec.name(), "trainer-abc");
  EXPECT_TRUE(run->spec.has_restart_budget());
  EXPECT_EQ(run->spec.restart_budget(), 0);
  flags.no_python = true;
  EXPECT_FALSE(BuildRun(flags, {"x"}, env_, "abc").ok());
  flags.module = false;
  run = BuildRun(flags, {"./a.out"}, env_, "abc");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(run->spec.argv(), ElementsAre(dir_ + "/a.out"));
}

TEST_F(RunTest, CountsProcessesByWhatANodeHas) {
  const auto ranks = [&](const std::string& text, int gpus, double cpus) {
    RunFlags flags;
    flags.nproc_per_node = text;
    if (gpus > 0) flags.job.gpus = gpus;
    if (cpus > 0) flags.job.cpus = cpus;
    const auto run = BuildRun(flags, {"a.py"}, env_, "abc");
    return run.ok() ? run->spec.roles(0).ranks_per_task() : -1;
  };
  EXPECT_EQ(ranks("4", 0, 0), 4);
  EXPECT_EQ(ranks("gpu", 2, 8), 2);
  EXPECT_EQ(ranks("cpu", 2, 8), 8);
  EXPECT_EQ(ranks("auto", 2, 8), 2);
  EXPECT_EQ(ranks("auto", 0, 8), 8);
  EXPECT_EQ(ranks("gpu", 0, 8), -1);
  EXPECT_EQ(ranks("0", 0, 0), -1);
  EXPECT_EQ(ranks("many", 0, 0), -1);
  EXPECT_EQ(Run({"run", "--nproc-per-node", "cpu", "--cpus", "0.5", "a.py"}),
            2);
  EXPECT_EQ(err_.str(),
            "lockstep: --nproc-per-node cpu: --cpus 0.5 is less than one; give "
            "at least 1\n");
}

TEST_F(RunTest, ARangeOfNodesIsAJobThatMayHaveFewerTasks) {
  RunFlags flags;
  flags.nnodes = "2:4";
  const auto built = BuildRun(flags, {"a.py"}, env_, "x");
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_EQ(built->spec.roles(0).count() + built->spec.roles(1).count(), 4);
  EXPECT_EQ(built->spec.elastic_min_tasks(), 2);
  EXPECT_TRUE(built->spec.rescale());
  flags.nnodes = "2:2";
  EXPECT_FALSE(BuildRun(flags, {"a.py"}, env_, "x")->spec.rescale());
  const auto refused = [&](const std::string& nodes) {
    flags.nnodes = nodes;
    return std::string(Message(BuildRun(flags, {"a.py"}, env_, "x").status()));
  };
  EXPECT_THAT(refused("4:2"), HasSubstr("the smaller number first"));
  EXPECT_THAT(refused("0:2"), HasSubstr("is not a number of nodes"));
  flags.job.elastic = 1;
  EXPECT_THAT(refused("2:4"), HasSubstr("leave out --elastic"));
}

TEST_F(RunTest, RefusesNothingToRun) {
  RunFlags flags;
  flags.nnodes = "2:2";
  flags.standalone = true;
  EXPECT_FALSE(BuildRun(flags, {"a.py"}, env_, "x").ok());
  EXPECT_EQ(Run({"run", "--nnodes", "2"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("there is nothing to run"));
  EXPECT_EQ(Run({"run", "--nnode", "2", "a.py"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("did you mean --nnodes?"));
}

TEST_F(RunTest, WritesEachStreamWhereItBelongs) {
  Serve("a", v1::JOB_STATE_FAILED);
  server_->Update([](FakeAnswers* a) {
    v1::LogLine line;
    line.set_text("to out");
    line.set_stream("stdout");
    a->lines = {line};
    line.set_text("to err");
    line.set_stream("stderr");
    a->lines.push_back(line);
  });
  EXPECT_EQ(Run({"run", "--name", "a", "train.py"}), 3);
  EXPECT_EQ(out_.str(), "to out\n");
  EXPECT_THAT(err_.str(), HasSubstr("to err\n"));
  EXPECT_THAT(err_.str(), HasSubstr("first cause: rank 0"));
}

TEST_F(RunTest, SaysTheJobsCauseOfAFailure) {
  v1::Job job = Ended("a", v1::JOB_STATE_FAILED);
  job.mutable_cause()->set_reason(v1::REASON_RANK_LEFT_EARLY);
  job.mutable_cause()->set_message(
      "rank 1 (worker 0 on b) exited with 0 while others still needed it; rank "
      "0 (chief 0 on host-a): exit code 3: Connection closed by peer");
  server_->Update([&](FakeAnswers* a) { a->jobs = {job}; });
  EXPECT_EQ(Run({"run", "--name", "a", "train.py"}), 3);
  EXPECT_THAT(err_.str(),
              HasSubstr("a FAILED; first cause: rank 1 (worker 0 on b) exited "
                        "with 0 while others still needed it; "));
}

TEST_F(RunTest, CtrlCCancelsAndWaits) {
  server_->Update([](FakeAnswers* a) {
    v1::Job job = Ended("a", v1::JOB_STATE_RUNNING);
    a->jobs = {job};
    a->endless = true;
  });
  // Not before it is submitted.
  env_.interrupted = [asked = false]() mutable {
    return std::exchange(asked, true);
  };
  // Its lines end with it.
  std::thread ender([this] {
    const MonoTime deadline = clock_.Now().mono + std::chrono::seconds(20);
    while (server_->Answers().cancelled.empty() &&
           clock_.Now().mono < deadline) {
      std::this_thread::yield();
    }
    server_->Update([](FakeAnswers* a) { a->endless = false; });
  });
  EXPECT_EQ(Run({"run", "--name", "a", "train.py"}), 130) << err_.str();
  ender.join();
  EXPECT_THAT(server_->Answers().cancelled, ElementsAre("a"));
  EXPECT_THAT(err_.str(), HasSubstr("cancelling a"));
}

TEST_F(RunTest, PlansOnly) {
  EXPECT_EQ(Run({"plan", "run", "--nnodes", "2", "train.py", "--dry-run"}), 0)
      << err_.str();
  EXPECT_TRUE(server_->Answers().submits.at(0).validate_only());
  EXPECT_THAT(out_.str(), HasSubstr("worker  1      1           1 cpu\n"));
  EXPECT_THAT(out_.str(), HasSubstr("TASK     NODE    GPUS\n"));
}

TEST_F(RunTest, SignalBeforeTheSubmissionSubmitsNothing) {
  env_.interrupted = [] { return true; };
  EXPECT_EQ(Run({"run", "--name", "a", "train.py"}), 130);
  EXPECT_THAT(server_->Answers().submits, testing::IsEmpty());
}

TEST_F(RunTest, PlanTakesTheWholeCommandLine) {
  EXPECT_EQ(Run({"plan", "run", "--prefix", "train.py"}), 0) << err_.str();
  EXPECT_EQ(Run({"plan", "submit", "--detach", "--", "prog"}), 0) << err_.str();
  EXPECT_THAT(server_->Answers().jobs, testing::IsEmpty());
}

TEST_F(RunTest, HelpOfAPlanNamesNothingThatItLacks) {
  for (const char* const command : {"submit", "run", "training"}) {
    EXPECT_EQ(Run({"plan", command, "--help"}), 0);
    EXPECT_THAT(out_.str(), HasSubstr("the cost per hour"));
    for (const char* const word :
         {"--detach", "--dry-run", "--stream-logs", "Ctrl-C"}) {
      EXPECT_THAT(out_.str(), Not(HasSubstr(word))) << command;
    }
  }
}

}  // namespace
}  // namespace lockstep::cli
