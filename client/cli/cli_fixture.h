// Runs `lockstep` against a coordinator with canned answers.
#ifndef LOCKSTEP_CLIENT_CLI_CLI_FIXTURE_H_
#define LOCKSTEP_CLIENT_CLI_CLI_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "client/cli/cli.h"
#include "client/lib/fake_coordinator.h"
#include "common/base/file.h"

namespace lockstep::cli {

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    auto server = FakeCoordinator::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    env_.out = &out_;
    env_.err = &err_;
    env_.in = &in_;
    env_.clock = &clock_;
    env_.working_directory = dir_;
    env_.program_dir = dir_;
    env_.variables = {{"HOME", dir_},
                      {"LOCKSTEP_ADDRESS", server_->address()},
                      {"LOCKSTEP_INSECURE_LOOPBACK", "1"}};
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }

  int Run(std::vector<std::string> args) {
    out_.str("");
    err_.str("");
    return RunCli(args, &env_);
  }

  static v1::Job Ended(const std::string& name, v1::JobState state) {
    v1::Job job;
    job.set_name(name);
    job.set_state(state);
    job.set_generation(1);
    v1::TaskStatus* const task = job.add_tasks();
    task->set_type(v1::TASK_TYPE_CHIEF);
    task->set_node("host-a");
    v1::RankStatus* const rank = task->add_ranks();
    rank->mutable_exit()->set_code(state == v1::JOB_STATE_FAILED ? 3 : 0);
    if (state == v1::JOB_STATE_FAILED) job.set_exit_code(3);
    return job;
  }
  // Serves the job, and a watch that shows it running and then as given.
  void ServeJob(const v1::Job& job) {
    server_->Update([&](FakeAnswers* a) {
      a->jobs = {job};
      v1::Job running = job;
      running.set_state(v1::JOB_STATE_RUNNING);
      a->watch.resize(3);
      *a->watch[0].mutable_job() = running;
      a->watch[1].set_synced(1);
      *a->watch[2].mutable_job() = job;
    });
  }

  std::string dir_;
  SystemClock clock_;
  std::ostringstream out_;
  std::ostringstream err_;
  std::istringstream in_;
  CliEnvironment env_;
  std::unique_ptr<FakeCoordinator> server_;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_CLI_FIXTURE_H_
