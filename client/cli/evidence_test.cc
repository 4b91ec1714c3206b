// `lockstep jobs stacks` against canned answers.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/cli/cli_fixture.h"

namespace lockstep::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class StacksTest : public CliTest {
 protected:
  void Serve() {
    ServeJob(Ended("fashion", v1::JOB_STATE_SUCCEEDED));
    v1::JobEvidence evidence;
    evidence.set_job("fashion");
    evidence.set_verdict(
        "rank 1 waits in load (train.py:88); 2 ranks wait for it in "
        "all_reduce");
    v1::StackGroup* group = evidence.add_groups();
    group->add_ranks(0);
    group->add_ranks(2);
    group->set_where("waits in all_reduce (train.py:90)");
    group = evidence.add_groups();
    group->add_ranks(1);
    group->set_where("waits in load (train.py:88)");
    group->set_odd(true);
    v1::StackFrame* const frame = group->add_frames();
    frame->set_function("load\x1b[31m");
    frame->set_file("train.py");
    frame->set_line(88);
    v1::StackFrame* const outer = group->add_frames();
    outer->set_function("pybind11::cpp_function::initialize<" +
                        std::string(200, 'x'));
    outer->set_file("libtorch_python.so");
    evidence.add_differences("rank 1 has 1 GiB in swap");
    evidence.add_hints("install py-spy");
    v1::RankEvidence* const rank = evidence.add_ranks();
    rank->set_rank(1);
    rank->set_node("host-a");
    v1::ProcessEvidence* const process = rank->add_processes();
    process->set_pid(4711);
    process->set_command("python3");
    process->set_state("S");
    server_->Update([&](FakeAnswers* a) { a->evidence = evidence; });
  }
};

TEST_F(StacksTest, AVerdictAndGroups) {
  Serve();
  ASSERT_EQ(Run({"jobs", "stacks", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("rank 1 waits in load (train.py:88); 2"));
  EXPECT_THAT(out_.str(), HasSubstr("ranks 0 and 2: waits in all_reduce"));
  EXPECT_THAT(out_.str(), HasSubstr("rank 1 (not where most are): waits"));
  EXPECT_THAT(out_.str(), HasSubstr("train.py:88"));
  EXPECT_THAT(out_.str(), HasSubstr("initialize<xxxxxxxxxx...  libtorch"));
  EXPECT_THAT(out_.str(), HasSubstr("1 GiB in swap"));
  EXPECT_THAT(out_.str(), HasSubstr("install py-spy"));
  // A program's texts command no terminal.
  EXPECT_EQ(out_.str().find('\x1b'), std::string::npos);
  EXPECT_THAT(out_.str(), Not(HasSubstr("4711")));
  ASSERT_EQ(Run({"jobs", "stacks", "fashion", "--all"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("process 4711 python3"));
}

TEST_F(StacksTest, RanksAreChosen) {
  Serve();
  ASSERT_EQ(Run({"jobs", "stacks", "fashion", "--rank", "0-1,5"}), 0);
  EXPECT_THAT(server_->Answers().evidence_requests.back().ranks(),
              ElementsAre(0, 1, 5));
  EXPECT_EQ(Run({"jobs", "stacks", "fashion", "--rank", "x"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--rank"));
}

TEST_F(StacksTest, Json) {
  Serve();
  ASSERT_EQ(Run({"jobs", "stacks", "fashion", "-o", "json"}), 0);
  const auto json = nlohmann::json::parse(out_.str(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["groups"].size(), 2u);
  EXPECT_EQ(json["groups"][1]["odd"], true);
}

TEST_F(StacksTest, WhyAJobOfASilentHostWaits) {
  Serve();
  server_->Update([](FakeAnswers* a) {
    a->jobs[0].set_state(v1::JOB_STATE_RUNNING);
    v1::Cause* const cause = a->jobs[0].mutable_cause();
    cause->set_reason(v1::REASON_NODE_UNKNOWN);
    cause->set_message("node a is silent since 12:00:00 UTC");
  });
  ASSERT_EQ(Run({"jobs", "why", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("node a is silent since 12:00:00 UTC"));
}

TEST_F(StacksTest, WhyARunningJobHangs) {
  Serve();
  server_->Update([](FakeAnswers* a) {
    a->jobs[0].set_state(v1::JOB_STATE_RUNNING);
    v1::Event* const event = a->jobs[0].add_events();
    event->set_reason(v1::REASON_STALLED);
    event->set_message("no step for 20 min");
  });
  ASSERT_EQ(Run({"jobs", "why", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("fashion RUNNING"));
  EXPECT_THAT(out_.str(), HasSubstr("rank 1 waits in load (train.py:88); 2"));
  EXPECT_THAT(out_.str(), HasSubstr("ranks 0 and 2: waits in all_reduce"));
  EXPECT_THAT(out_.str(), HasSubstr("no step for 20 min"));
  ASSERT_EQ(Run({"jobs", "why", "fashion", "-o", "json"}), 0);
  const auto json = nlohmann::json::parse(out_.str(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["state"], "RUNNING");
  EXPECT_EQ(json["evidence"]["groups"].size(), 2u);
  EXPECT_EQ(json["events"].size(), 1u);
}

TEST_F(StacksTest, WhyAJobFailed) {
  v1::Job job = Ended("fashion", v1::JOB_STATE_FAILED);
  v1::ExitStatus* const exit =
      job.mutable_tasks(0)->mutable_ranks(0)->mutable_exit();
  exit->set_message("ValueError: no data");
  exit->set_location("train.py:12");
  ServeJob(job);
  ASSERT_EQ(Run({"jobs", "why", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(),
              HasSubstr("rank 0 (chief 0 on host-a) ended with exit code 3, at "
                        "train.py:12: ValueError: no data"));
  // An ended job has no ranks to look at.
  for (const auto& request : server_->Answers().evidence_requests) {
    EXPECT_TRUE(request.kept());
  }
}

TEST_F(StacksTest, WhyAnEarlierAttemptWasStopped) {
  Serve();
  server_->Update([](FakeAnswers* a) {
    v1::Job& job = a->jobs[0];
    job.set_state(v1::JOB_STATE_RUNNING);
    job.clear_attempts();
    for (const v1::Reason reason : {v1::REASON_STALLED, v1::REASON_RANK_EXIT}) {
      v1::Attempt* const attempt = job.add_attempts();
      attempt->set_ordinal(job.attempts_size() + 1);
      attempt->set_generation(static_cast<uint64_t>(job.attempts_size()) + 4);
      attempt->mutable_end_cause()->set_reason(reason);
    }
    a->kept_evidence.set_generation(5);
    a->kept_evidence.set_trigger("STALLED");
    a->kept_evidence.set_verdict("rank 2 waits in wait_for_lock (train.py:7)");
  });
  ASSERT_EQ(Run({"jobs", "why", "fashion"}), 0) << err_.str();
  // What it does now comes first.
  EXPECT_THAT(out_.str(), HasSubstr("fashion RUNNING\nrank 1 waits in load"));
  EXPECT_THAT(out_.str(), HasSubstr("Before attempt 2 was stopped"));
  EXPECT_THAT(out_.str(), HasSubstr("rank 2 waits in wait_for_lock"));
  ASSERT_EQ(Run({"jobs", "why", "fashion", "-o", "json"}), 0);
  const auto json = nlohmann::json::parse(out_.str(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["kept"]["verdict"],
            "rank 2 waits in wait_for_lock (train.py:7)");
  // One that was only warned about.
  server_->Update(
      [](FakeAnswers* a) { a->kept_evidence.set_trigger("NO_PROGRESS"); });
  ASSERT_EQ(Run({"jobs", "why", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("When attempt 2 stood still"));
}

// The signal that ended a rank is no cause: lockstep sent it.
TEST_F(StacksTest, WhyAJobFailedThatStoodStill) {
  v1::Job job = Ended("fashion", v1::JOB_STATE_FAILED);
  job.clear_attempts();
  v1::Attempt* const attempt = job.add_attempts();
  attempt->set_ordinal(1);
  attempt->mutable_end_cause()->set_reason(v1::REASON_STALLED);
  ServeJob(job);
  server_->Update([](FakeAnswers* a) {
    a->kept_evidence.set_verdict("rank 2 waits in wait_for_lock (train.py:7)");
  });
  ASSERT_EQ(Run({"jobs", "why", "fashion", "-o", "json"}), 0) << err_.str();
  const auto json = nlohmann::json::parse(out_.str(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["verdict"], "rank 2 waits in wait_for_lock (train.py:7)");
  const FakeAnswers answers = server_->Answers();
  ASSERT_EQ(answers.evidence_requests.size(), 1u);
  EXPECT_TRUE(answers.evidence_requests[0].kept());
}

TEST_F(StacksTest, WhyAJobWaits) {
  v1::Job job;
  job.set_name("fashion");
  job.set_state(v1::JOB_STATE_QUEUED);
  job.mutable_cause()->set_reason(v1::REASON_NO_CAPACITY);
  job.mutable_cause()->set_message("it needs 8 GPUs and 4 are free");
  ServeJob(job);
  server_->Update(
      [](FakeAnswers* a) { a->jobs[0].set_state(v1::JOB_STATE_QUEUED); });
  ASSERT_EQ(Run({"jobs", "why", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("it needs 8 GPUs and 4 are free"));
}

}  // namespace
}  // namespace lockstep::cli
