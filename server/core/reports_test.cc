#include "server/core/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/reduction_plan.h"
#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::SizeIs;

// ---- What nodes tell beside ----

TEST(ReportsTest, RankEventsAreRecordedOnce) {
  Scene s = Running();
  s.Gang("b").events = {{1, 1, s.now.wall, Reason::kNone, "warming up"}};
  s.Settle();
  s.Gang("b").events.push_back({2, 1, s.now.wall, Reason::kNone, "go"});
  s.Settle();
  int seen = 0;
  for (const Event& event : s.job.events) {
    if (event.message == "rank 1 (worker 0 on b): warming up") ++seen;
  }
  EXPECT_EQ(seen, 1);
  EXPECT_THAT(s.job.events.back().message, HasSubstr("go"));
}

TEST(ReportsTest, ReportsWithoutNewsChangeNothing) {
  Scene s = Running();
  const Job before = s.job;
  s.Rank(0).progress.committed_step = 7;  // Soft: in memory only.
  s.Settle();
  EXPECT_EQ(s.job, before);
}

// ---- How the ranks reduce ----

ReductionPlan TwoRanks() {
  ReductionPlan plan;
  plan.ranks = 2;
  plan.hosts = 2;
  plan.bucket_bytes = plan.first_bucket_bytes = plan.last_bucket_bytes = 4096;
  plan.layout = "0123456789abcdef";
  return plan;
}

TEST(ReportsTest, TheReductionPlanOfRankZeroIsKept) {
  Scene s = Running();
  const std::string plan = Format(TwoRanks()).value();
  s.Gang("b").reduction_plan = plan;  // Not rank 0's node.
  s.Settle();
  EXPECT_EQ(s.job.reduction_plan, "");
  s.Gang("a").reduction_plan = plan;
  s.Settle();
  EXPECT_EQ(s.job.reduction_plan, plan);
  // The order has been learned since.
  ReductionPlan learned = TwoRanks();
  learned.parameters = 2;
  learned.order = {1, 0};
  learned.learned_at = 2;
  s.Gang("a").reduction_plan = Format(learned).value();
  s.Settle();
  EXPECT_EQ(s.job.reduction_plan, Format(learned).value());
  const Job kept = s.job;
  s.Gang("a").reduction_plan.clear();
  s.Settle();
  EXPECT_EQ(s.job, kept);
}

TEST(ReportsTest, AReductionPlanThatMakesNoSenseIsRefusedOnce) {
  Scene s = Running();
  ReductionPlan four = TwoRanks();
  four.ranks = 4;
  for (const std::string& text :
       {std::string("lockstep-reduction-plan 1\nranks 2\n"),
        Format(four).value(), std::string(kMaxReductionPlan + 1, 'x')}) {
    s.Gang("a").reduction_plan = text;
    s.Settle();
    EXPECT_EQ(s.job.reduction_plan, "");
    EXPECT_THAT(s.job.events.back().message,
                HasSubstr("node a sent an unusable reduction plan: "));
    const size_t events = s.job.events.size();
    s.Gang("a").directive_done += 1;  // Another report.
    s.Settle();
    EXPECT_EQ(s.job.events.size(), events);
  }
  EXPECT_EQ(s.job.state, JobState::kRunning);
}

TEST(ReportsTest, EndlessSentencesAreCutAtACharacter) {
  Scene s = Running();
  ExitStatus exit = Code(9);
  for (int i = 0; i < 4000; ++i) exit.message += "\u00e9";
  s.Exited(1, exit);
  s.Settle();
  s.AllStopped();
  s.Settle();
  for (const Event& event : s.job.events) {
    EXPECT_LE(event.message.size(), kMaxSentence);
  }
  ASSERT_FALSE(s.job.attempts.empty());
  const std::string& text = s.job.attempts.back().end_cause.message;
  EXPECT_LE(text.size(), kMaxSentence);
  EXPECT_EQ(text.substr(text.size() - 5), "\u00e9...");
}

TEST(ReportsTest, EventsAreBoundedAndTheFirstStay) {
  Scene s = Running();
  const Event first = s.job.events.front();
  for (int i = 0; i < 1000; ++i) {
    AddEvent(&s.job, Reason::kNone, std::to_string(i), s.now);
  }
  EXPECT_THAT(s.job.events, SizeIs(kMaxEvents));
  EXPECT_EQ(s.job.events.front(), first);
  EXPECT_EQ(s.job.events.back().message, "999");
}

TEST(ReportsTest, PhasesAddUpToTheJobsLife) {
  Scene s = Queued();
  s.Advance(1s);
  s.Put({"a", "b"});
  s.Advance(2s);
  s.Prepared();
  s.Settle();
  s.Advance(3s);
  s.Started();
  s.Joined();
  s.Settle();
  s.Advance(4s);
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.Settle();
  s.Advance(5s);
  EXPECT_EQ(PhaseDuration(s.job, JobState::kFinishing, s.now.wall), 5s);
  s.AllStopped();
  s.Settle();
  EXPECT_EQ(s.job.phase_durations.at(JobState::kQueued), 1s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kPreparing), 2s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kForming), 3s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kRunning), 4s);
  EXPECT_EQ(s.job.phase_durations.at(JobState::kFinishing), 5s);
  s.Advance(100s);
  EXPECT_EQ(PhaseDuration(s.job, JobState::kFinishing, s.now.wall), 5s);
  ASSERT_THAT(s.job.attempts, SizeIs(1));
  EXPECT_EQ(s.job.attempts[0].end_time - s.job.attempts[0].start_time, 14s);
}

// ---- Directives ----

TEST(ReportsTest, CheckpointDirectiveIsPendingUntilItTookEffect) {
  Scene s = Running();
  for (uint32_t id = 1; id <= 2; ++id) {
    const auto asked = AddCheckpointDirective(s.job, s.view, s.now);
    ASSERT_TRUE(asked.ok()) << Message(asked.status());
    s.job = *asked;
    EXPECT_EQ(s.job.directives.back().id, id);
  }
  s.Gang("a").directive_done = 1;
  s.Settle();
  ASSERT_THAT(s.job.directives, SizeIs(1));
  EXPECT_EQ(s.job.directives[0].id, 2u);
}

TEST(ReportsTest, PendingDirectivesAreNumberedAnewInTheNextGeneration) {
  Scene s = Running();
  for (int i = 0; i < 3; ++i)
    s.job = *AddCheckpointDirective(s.job, s.view, s.now);
  s.Gang("a").directive_done = 1;
  s.Exited(1, Code(1));
  s.Settle();
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.generation, 2u);
  ASSERT_THAT(s.job.directives, SizeIs(2));
  EXPECT_EQ(s.job.directives[0].id, 1u);
  EXPECT_EQ(s.job.directives[1].id, 2u);
  EXPECT_EQ(s.job.next_directive, 3u);
}

TEST(ReportsTest, CheckpointIsRefusedWithTheReason) {
  Scene program(ParameterServers());
  EXPECT_EQ(
      ReasonOf(AddCheckpointDirective(program.job, program.view, program.now)
                   .status()),
      "NOT_RUNNING");
  Scene nowhere = Running();
  nowhere.job.spec.output_directory.clear();
  EXPECT_EQ(
      ReasonOf(AddCheckpointDirective(nowhere.job, nowhere.view, nowhere.now)
                   .status()),
      "NO_OUTPUT_DIRECTORY");
  Scene queued = Queued();
  EXPECT_EQ(
      ReasonOf(
          AddCheckpointDirective(queued.job, queued.view, queued.now).status()),
      "NOT_RUNNING");
  Scene failing = Failing();
  EXPECT_EQ(
      ReasonOf(AddCheckpointDirective(failing.job, failing.view, failing.now)
                   .status()),
      "NOT_RUNNING");
}

TEST(ReportsTest, AProgramSavesOnRequestOnceItsRanksHaveJoined) {
  Scene s(ProgramSpec("p", {Role(TaskType::kWorker, 2)}));
  s.Run({"a", "b"});
  s.Rank(0).progress.phase = "compute";
  const Status refused = AddCheckpointDirective(s.job, s.view, s.now).status();
  EXPECT_EQ(ReasonOf(refused), "NOT_JOINED");
  EXPECT_EQ(Message(refused),
            "rank 1 (worker 1 on b) of program p has not joined: each rank "
            "calls lockstep.join() and, after each step, "
            "session.checkpoint_due()");
  s.Rank(1).progress.phase = "input";
  const auto asked = AddCheckpointDirective(s.job, s.view, s.now);
  ASSERT_TRUE(asked.ok()) << Message(asked.status());
  EXPECT_EQ(asked->directives.back().kind, DirectiveKind::kCheckpoint);
}

TEST(ReportsTest, DirectivesAreBounded) {
  Scene s = Running();
  Status status;
  int taken = 0;
  for (; taken < 100; ++taken) {
    const auto asked = AddCheckpointDirective(s.job, s.view, s.now);
    status = asked.status();
    if (!status.ok()) break;
    s.job = *asked;
  }
  EXPECT_EQ(taken, 16);
  EXPECT_EQ(ReasonOf(status), "TOO_MANY_CHECKPOINTS");
  s.job.directives.clear();
  s.job.next_directive = 4096;
  EXPECT_FALSE(AddCheckpointDirective(s.job, s.view, s.now).ok()) << "12 bits";
}

// ---- Outputs and checkpoints ----

TEST(ReportsTest, OutputsAreThoseOfRankZerosNodeAtTheEnd) {
  Scene s = Running();
  s.Gang("a").outputs = {{"model.safetensors", "safetensors", 7}};
  s.Gang("b").outputs = {{"tmp", "torch", 9}};
  s.Settle();
  EXPECT_THAT(s.job.outputs, testing::IsEmpty()) << "not yet at its end";
  s.Exited(0, Code(0));
  s.Exited(1, Code(0));
  s.AllStopped();
  s.Settle();
  ASSERT_EQ(s.job.state, JobState::kSucceeded);
  ASSERT_THAT(s.job.outputs, SizeIs(1));
  EXPECT_EQ(s.job.outputs[0].path, "model.safetensors");
}

TEST(ReportsTest, OutputsAreBounded) {
  Scene s = Running();
  s.Gang("a").outputs.resize(1000);
  s.Exited(0, Code(0));
  s.AllStopped();
  s.Settle();
  EXPECT_THAT(s.job.outputs, SizeIs(kMaxOutputsOfJob));
}

TEST(ReportsTest, CheckpointsAreToldOnceAMinute) {
  Scene s = Running();
  const auto told = [&] {
    std::vector<std::string> messages;
    for (const Event& event : s.job.events) {
      if (event.reason == Reason::kCheckpointSaved) {
        messages.push_back(event.message);
      }
    }
    return messages;
  };
  for (int step = 1; step <= 60; ++step) {
    s.Gang("a").checkpoint = Checkpoint{step, 1, "/out", {}, 1};
    s.Settle();
    if (step == 2) {
      EXPECT_THAT(told(), testing::ElementsAre("checkpoint of step 1 saved"));
    }
    s.Advance(20s);
  }
  ASSERT_THAT(told(), SizeIs(10));
  EXPECT_EQ(told().front(), "checkpoint of step 1 saved");
  EXPECT_EQ(told()[1], "checkpoint of step 34 saved");
  EXPECT_EQ(told().back(), "checkpoint of step 58 saved");
}

}  // namespace
}  // namespace lockstep::server
