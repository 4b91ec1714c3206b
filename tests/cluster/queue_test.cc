// Waiting, cancelling, and what can never be.
#include "common/base/random.h"
#include "tests/cluster/fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class QueueTest : public ClusterTest {
 protected:
  v1::JobSpec Sleeper(const std::string& name, int tasks) {
    return Program(name, tasks, {"sleep", "1000"});
  }
  // What all nodes have promised.
  double Allocated() {
    double cpus = 0;
    const auto nodes = client()->ListNodes();
    EXPECT_TRUE(nodes.ok()) << nodes.status();
    if (!nodes.ok()) return -1;
    for (const v1::Node& node : *nodes) cpus += node.allocated().cpus();
    return cpus;
  }
  void CancelAndWait(const std::string& name) {
    const auto cancelled = client()->CancelJob(name);
    ASSERT_TRUE(cancelled.ok()) << cancelled.status();
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(job.cause().reason(), v1::REASON_CANCELLED_BY_USER);
    EXPECT_THAT(job.cause().message(), HasSubstr("local"));
    EXPECT_EQ(job.exit_code(), 1);
    EXPECT_EQ(Allocated(), 0);
  }
};

TEST_F(QueueTest, CancelWhileRunning) {
  Submit(Sleeper("running", 2));
  WaitFor("running", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Allocated(), 2);
  CancelAndWait("running");
  // Once more: as it is.
  const auto again = client()->CancelJob("running");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(QueueTest, CancelWhileSteppingLeavesNoVictimAsTheCause) {
  Submit(Steps("stepping", 2, {"--steps", "1000000"}));
  WaitUntil("stepping", "steps", [](const v1::Job& job) {
    return job.progress().chief().committed_step() > 0;
  });
  CancelAndWait("stepping");
}

TEST_F(QueueTest, CancelWhileQueued) {
  Submit(Sleeper("first", 2));
  WaitFor("first", v1::JOB_STATE_RUNNING);
  Submit(Sleeper("second", 1));
  WaitUntil("second", "a reason", [](const v1::Job& job) {
    return job.cause().reason() == v1::REASON_NO_CAPACITY;
  });
  ASSERT_TRUE(client()->CancelJob("second").ok());
  const v1::Job job = WaitEnd("second", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.attempts_size(), 0);
  CancelAndWait("first");
}

// Started, and never joins.
TEST_F(QueueTest, CancelWhileForming) {
  v1::JobSpec spec = Sleeper("forming", 2);
  spec.set_kind(v1::JOB_KIND_NATIVE);
  Submit(spec);
  WaitUntil("forming", "started ranks", [](const v1::Job& job) {
    return job.state() == v1::JOB_STATE_FORMING && PidOf(job, 0) != 0 &&
           PidOf(job, 1) != 0;
  });
  CancelAndWait("forming");
}

TEST_F(QueueTest, WhatNeverFitsIsRefusedWithTheNearest) {
  v1::JobSpec spec = Sleeper("huge", 2);
  spec.mutable_roles(1)->mutable_resources()->set_cpus(64);
  auto answer = client()->SubmitJob(spec);
  EXPECT_EQ(answer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(answer.status()), "NEVER_FITS");
  EXPECT_THAT(Message(answer.status()), HasSubstr("64"));
  EXPECT_THAT(Message(answer.status()), HasSubstr("1"));  // The nearest.
  EXPECT_EQ(client()->GetJob("huge").status().code(), StatusCode::kNotFound);

  answer = client()->SubmitJob(Sleeper("many", 3));
  EXPECT_EQ(ReasonOf(answer.status()), "NEVER_FITS");

  spec = Sleeper("gpu", 1);
  spec.mutable_roles(0)->mutable_resources()->set_gpus(1);
  answer = client()->SubmitJob(spec);
  EXPECT_EQ(ReasonOf(answer.status()), "NEVER_FITS");
  EXPECT_THAT(Message(answer.status()), HasSubstr("GPU"));
}

TEST_F(QueueTest, TheSecondWaitsAndThenRuns) {
  Submit(Shell("one", 2,
               "while [ ! -e " + Path("go") + " ]; do sleep 0.02; done"));
  WaitFor("one", v1::JOB_STATE_RUNNING);
  Submit(Shell("two", 2, "echo at last"));
  const v1::Job waiting = WaitUntil("two", "a reason", [](const v1::Job& job) {
    return job.cause().reason() == v1::REASON_NO_CAPACITY;
  });
  EXPECT_EQ(waiting.state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(waiting.cause().message(), Not(IsEmpty()));
  WriteFile(Path("go"), "");
  const v1::Job one = WaitEnd("one", v1::JOB_STATE_SUCCEEDED);
  const v1::Job two = WaitEnd("two", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Line("two", 1, "at last"), "at last");
  // Never side by side.
  EXPECT_LE(one.attempts(0).end_time().seconds(),
            two.start_time().seconds() + 1);
  EXPECT_EQ(Allocated(), 0);
}

TEST_F(QueueTest, ADryRunPlansAndChangesNothing) {
  SubmitOptions options;
  options.validate_only = true;
  auto plan = client()->SubmitJob(Sleeper("dry", 2), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placement_size(), 2);
  EXPECT_EQ(client()->GetJob("dry").status().code(), StatusCode::kNotFound);
  Submit(Sleeper("dry", 2));
  WaitFor("dry", v1::JOB_STATE_RUNNING);
  plan = client()->SubmitJob(Sleeper("later", 1), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placement_size(), 0);
  EXPECT_EQ(plan->waiting().reason(), v1::REASON_NO_CAPACITY);
}

TEST_F(QueueTest, TheSameRequestGetsTheSameAnswer) {
  SubmitOptions options;
  options.request_id = RandomUuid();
  const auto first = client()->SubmitJob(Sleeper("same", 1), options);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = client()->SubmitJob(Sleeper("same", 1), options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job().uid(), first->job().uid());
  const auto other = client()->SubmitJob(Sleeper("same", 2), options);
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(other.status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(client()->SubmitJob(Sleeper("same", 1)).status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(QueueTest, TimeLimits) {
  v1::JobSpec slow = Sleeper("slow", 2);
  slow.mutable_max_running_time()->set_seconds(5);
  Submit(slow);
  v1::JobSpec impatient = Sleeper("impatient", 2);
  impatient.mutable_max_wait_time()->set_nanos(300'000'000);
  Submit(impatient);
  EXPECT_EQ(WaitEnd("impatient", v1::JOB_STATE_CANCELLED).cause().reason(),
            v1::REASON_MAX_WAIT_TIME);
  EXPECT_EQ(WaitEnd("slow", v1::JOB_STATE_CANCELLED).cause().reason(),
            v1::REASON_MAX_RUNNING_TIME);
}

}  // namespace
}  // namespace lockstep::cli
