#include "server/core/holding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/assignments.h"
#include "server/core/scenes.h"
#include "server/core/scheduler.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

ExitStatus NoCheckpoint() {
  ExitStatus exit = Code(1);
  exit.reason = Reason::kNoCheckpoint;
  exit.message = "the checkpoint of step 40 is not there";
  return exit;
}

// Generation 1 ran, saved step 40, and lost a rank; generation 2 is being
// prepared.
Scene SecondGeneration() {
  Scene s = Running();
  s.job.output_identity = std::string(32, 'a');
  s.Gang("a").checkpoint = Checkpoint{40, 1, "/out/step-40", s.now.wall, 1};
  s.Settle();
  s.Exited(1, Signal(9));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.generation, 2u);
  return s;
}

// Node a does not find the directory.
void LookInVain(Scene* s) {
  s->Refused("a", {Reason::kOutputMissing, "/out is not mounted"});
  s->Settle();
  s->AllStopped();
  s->Settle();
  ASSERT_EQ(s->job.state, JobState::kPlacing);
}

// Rank 0 does not find its checkpoint.
void ResumeInVain(Scene* s) {
  s->Run({"a", "b"});
  s->Exited(0, NoCheckpoint());
  s->Settle();
  s->AllStopped();
  s->Settle();
  ASSERT_EQ(s->job.state, JobState::kPlacing);
}

int EventCount(const Job& job, Reason reason) {
  return static_cast<int>(
      std::count_if(job.events.begin(), job.events.end(),
                    [&](const Event& e) { return e.reason == reason; }));
}

TEST(HoldingTest, LooksComeLessAndLessOften) {
  EXPECT_EQ(LookBackoff(1), 1s);
  EXPECT_EQ(LookBackoff(2), 2s);
  EXPECT_EQ(LookBackoff(5), 16s);
  EXPECT_EQ(LookBackoff(6), 30s);
  EXPECT_EQ(LookBackoff(1'000'000), 30s);
}

TEST(HoldingTest, AMissingDirectoryCostsNoTryAndHoldsNothing) {
  Scene s = SecondGeneration();
  const int32_t failures = s.job.failures_without_progress;
  LookInVain(&s);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutputMissing);
  EXPECT_THAT(s.job.cause.message,
              AllOf(HasSubstr("node a: /out is not mounted"),
                    HasSubstr("restore-to j STEP")));
  EXPECT_EQ(s.job.failures_without_progress, failures);
  EXPECT_THAT(s.job.holds, IsEmpty());
  ASSERT_TRUE(s.job.output_hold);
  EXPECT_EQ(s.job.output_hold->reason, Reason::kOutputMissing);
  EXPECT_EQ(*s.job.not_before, s.now.wall + 1s);
}

TEST(HoldingTest, ALongHoldLeavesOneTraceOnly) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  const size_t events = s.job.events.size();
  const size_t attempts = s.job.attempts.size();
  const size_t lineage = s.job.lineage.size();
  const WallTime since = s.job.output_hold->since;
  for (int look = 0; look < 200; ++look) {
    s.Advance(30s);
    s.Put({"a", "b"});
    LookInVain(&s);
  }
  EXPECT_EQ(s.job.events.size(), events);
  EXPECT_EQ(s.job.attempts.size(), attempts);
  EXPECT_EQ(s.job.lineage.size(), lineage);
  EXPECT_EQ(s.job.lineage.front(), (LineageEntry{1, 0}));
  EXPECT_EQ(s.job.output_hold->since, since);
  EXPECT_EQ(*s.job.not_before, s.now.wall + 30s);
  EXPECT_EQ(s.job.restarts, 1) << "of generation 1";
}

TEST(HoldingTest, GoesOnByItselfOnceTheRanksHaveResumed) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  s.Advance(5s);
  s.Run({"a", "b"});
  EXPECT_TRUE(s.job.output_hold) << "a native job has to find its checkpoint";
  s.Gang("a").resumed_step = 40;
  s.Settle();
  EXPECT_FALSE(s.job.output_hold);
  EXPECT_THAT(s.job.events.back().message,
              HasSubstr("continues after a hold of 5"));
}

TEST(HoldingTest, AProgramGoesOnAsSoonAsItRuns) {
  Scene s(ProgramSpec("p", {Role(TaskType::kChief, 1)}));
  s.job.spec.output_directory = "/out";
  s.Put({"a"});
  s.Prepared();
  s.Settle();
  s.Started();
  s.Settle();
  s.Exited(0, Signal(9));
  s.Settle();
  s.AllStopped();
  s.Settle();
  LookInVain(&s);
  EXPECT_THAT(s.job.cause.message, Not(HasSubstr("STEP")));
  s.Put({"a"});
  s.Prepared();
  s.Settle();
  s.Started();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_FALSE(s.job.output_hold);
}

TEST(HoldingTest, ANodeThatDoesNotSeeTheKnownDirectoryHoldsTheJob) {
  Scene s = SecondGeneration();
  s.Refused("b", {Reason::kOutputNotShared, "/out is not shared"});
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPlacing);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutputMissing);
  EXPECT_TRUE(s.job.output_hold);
}

TEST(HoldingTest, AMissingCheckpointHolds) {
  Scene s = SecondGeneration();
  const int32_t failures = s.job.failures_without_progress;
  ResumeInVain(&s);
  EXPECT_EQ(s.job.cause.reason, Reason::kNoCheckpoint);
  EXPECT_EQ(s.job.failures_without_progress, failures);
  // Another reason is news.
  s.Put({"a", "b"});
  LookInVain(&s);
  EXPECT_EQ(s.job.output_hold->reason, Reason::kOutputMissing);
  EXPECT_EQ(s.job.output_hold->looks, 1);
}

TEST(HoldingTest, AnotherFailureEndsTheHold) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  s.Run({"a", "b"});
  s.Exited(1, Signal(11));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_FALSE(s.job.output_hold);
}

TEST(HoldingTest, TheQueueSaysWhy) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  HostCapacity host;
  host.node = "a";
  host.ready = true;
  host.capacity = {8, 0, 0, ""};
  const ScheduleResult result = Schedule({{&s.job, 1s, true}}, {host}, {});
  EXPECT_THAT(result.placed, IsEmpty());
  EXPECT_EQ(result.waiting.at("j").reason, Reason::kOutputMissing);
  EXPECT_EQ(result.waiting.at("j").message, s.job.cause.message);
}

TEST(HoldingTest, CancelAndTimeLimitsWorkWhileItHolds) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  Scene late = s;
  s.job = Cancel(s.job, "user/ann", s.now);
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kCancelled);
  late.job.spec.max_running_time = 60s;
  late.Advance(61s);
  late.Settle();
  EXPECT_EQ(late.job.state, JobState::kCancelled);
  EXPECT_EQ(late.job.cause.reason, Reason::kMaxRunningTime);
}

// ---- What generations are told ----

TEST(HoldingTest, GenerationsAreToldOfTheCheckpointsBefore) {
  Scene s = Running();
  s.Gang("a").checkpoint = Checkpoint{40, 1, "/out/step-40", s.now.wall, 1};
  s.Settle();
  const auto spec = [&] {
    return *DesiredAssignments(s.job, s.view, "a", {}, s.now).back().spec;
  };
  EXPECT_FALSE(spec().known_checkpoint) << "its own is no condition";
  s = SecondGeneration();
  ASSERT_TRUE(spec().known_checkpoint);
  EXPECT_EQ(spec().known_checkpoint->step, 40);
  EXPECT_FALSE(spec().restore);
  const Job before = s.job;
  s.job.restore = RestoreTarget{20};
  EXPECT_EQ(spec().restore, RestoreTarget{20});
  EXPECT_THAT(NodesToUpdate(&before, s.job), SizeIs(2));
}

// ---- RestoreTo ----

TEST(RestoreToTest, OfAJobThatWaitsItIsForTheNextGeneration) {
  Scene s = SecondGeneration();
  ResumeInVain(&s);
  const auto job = RestoreTo(s.job, RestoreTarget{20}, "user/ann", s.now);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->not_before) << "at once";
  EXPECT_EQ(job->restore, RestoreTarget{20});
  EXPECT_EQ(EventCount(*job, Reason::kRestoreOrdered), 1);
  EXPECT_EQ(job->events.back().message, "resume from step 20, by user/ann");
  EXPECT_EQ(job->output_identity, s.job.output_identity);
  s.job = *job;
  s.Run({"a", "b"});
  s.Gang("a").resumed_step = 20;
  s.Settle();
  EXPECT_FALSE(s.job.output_hold);
  EXPECT_TRUE(s.job.restore) << "who fails now resumes from the same";
  // Computed again, it is progress.
  s.Rank(0).progress.committed_step = 30;
  s.Exited(1, Signal(9));
  s.Settle();
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.failures_without_progress, 1);
  EXPECT_EQ(s.job.committed_step, 30);
  s.Run({"a", "b"});
  const Generation now = s.job.generation;
  s.Gang("a").checkpoint = Checkpoint{30, now, "/out/30", s.now.wall, 1};
  s.Settle();
  EXPECT_FALSE(s.job.restore);
  EXPECT_EQ(s.job.last_checkpoint->step, 30);
}

TEST(RestoreToTest, FromTheStartTakesTheDirectoryThatIsThere) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  auto job = RestoreTo(s.job, RestoreTarget{20}, "user/ann", s.now);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->output_identity, s.job.output_identity)
      << "a step is looked for in the known directory only";
  job = RestoreTo(s.job, RestoreTarget{}, "user/ann", s.now);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->output_identity, "");
  EXPECT_EQ(job->restore, RestoreTarget{});
  Scene other = SecondGeneration();
  ResumeInVain(&other);
  job = RestoreTo(other.job, RestoreTarget{}, "user/ann", other.now);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->output_identity, other.job.output_identity);
}

TEST(RestoreToTest, ALookThatGoesOnIsStopped) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  s.Put({"a", "b"});
  s.Settle();
  const int32_t failures = s.job.failures_without_progress;
  auto job = RestoreTo(s.job, RestoreTarget{20}, "user/ann", s.now);
  ASSERT_TRUE(job.ok()) << job.status();
  s.job = *job;
  ASSERT_TRUE(s.job.failing);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kPreparing);
  EXPECT_EQ(s.job.failures_without_progress, failures);
  EXPECT_EQ(s.job.restore, RestoreTarget{20});
  EXPECT_TRUE(s.job.output_hold);
}

TEST(RestoreToTest, OnlyOfAJobThatHolds) {
  Scene s = Running();
  auto job = RestoreTo(s.job, RestoreTarget{20}, "user/ann", s.now);
  EXPECT_EQ(job.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(job.status()), "NOT_HOLDING");
  EXPECT_THAT(Message(job.status()), HasSubstr("is RUNNING and not held"));
  s = SecondGeneration();
  LookInVain(&s);
  s.job = Cancel(s.job, "user/ann", s.now);
  EXPECT_EQ(
      RestoreTo(s.job, RestoreTarget{}, "user/ann", s.now).status().code(),
      StatusCode::kFailedPrecondition);
  s.Settle();
  job = RestoreTo(s.job, RestoreTarget{}, "user/ann", s.now);
  EXPECT_THAT(Message(job.status()), HasSubstr("has ended: it is CANCELLED"));
}

TEST(RestoreToTest, AProgramCanOnlyBeginAnew) {
  Scene s = SecondGeneration();
  LookInVain(&s);
  s.job.spec.kind = JobKind::kProgram;
  auto job = RestoreTo(s.job, RestoreTarget{20}, "user/ann", s.now);
  EXPECT_EQ(ReasonOf(job.status()), "NOT_NATIVE");
  job = RestoreTo(s.job, RestoreTarget{}, "user/ann", s.now);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->restore);
  EXPECT_EQ(job->output_identity, "");
}

// ---- A full directory ----

TEST(HoldingTest, AFullDirectoryIsSaidUntilACheckpointIsSaved) {
  Scene s = Running();
  s.Gang("a").events = {
      {1, 0, s.now.wall, Reason::kOutputFull, "no space for step 50"}};
  s.Settle();
  EXPECT_EQ(s.job.state, JobState::kRunning);
  EXPECT_EQ(s.job.cause.reason, Reason::kOutputFull);
  EXPECT_THAT(s.job.cause.message, HasSubstr("no space for step 50"));
  EXPECT_EQ(EventCount(s.job, Reason::kOutputFull), 1);
  s.Gang("a").checkpoint = Checkpoint{50, 1, "/out/step-50", s.now.wall, 1};
  s.Settle();
  EXPECT_EQ(s.job.cause.reason, Reason::kRunning);
}

}  // namespace
}  // namespace lockstep::server
