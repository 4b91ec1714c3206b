#include <gmock/gmock.h>

#include "server/coordinator/coordinator.h"
#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(CoordinatorTest, RepeatGetsTheFirstAnswer) {
  const auto first = Submit(Wide("j"), "r1");
  ASSERT_TRUE(first.ok());
  Connect(&a_);
  Connect(&b_);
  Run();
  const auto again = Submit(Wide("j"), "r1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
  Restart();
  EXPECT_EQ(Submit(Wide("j"), "r1").value_or(""), *first);
  EXPECT_EQ(coordinator_->queries()->ListJobs().size(), 1u);
}

TEST_F(CoordinatorTest, AUserHasSoManyLiveJobsAndNoMore) {
  options_.limits.per_user.jobs = 2;
  options_.limits.per_user.bytes = 100'000;
  Restart();
  MustSubmit(Wide("one"));
  MustSubmit(Wide("two"));
  const auto third = Submit(Wide("three"));
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(third.status()), "TOO_MANY_JOBS");
  EXPECT_THAT(Message(third.status()), HasSubstr("user/ann has 2 jobs"));
  // Nothing need be uploaded for a job that would be refused.
  EXPECT_EQ(
      ReasonOf(coordinator_->jobs()->Plan(Wide("three"), "user/ann").status()),
      "TOO_MANY_JOBS");
  EXPECT_TRUE(coordinator_->jobs()->Plan(Wide("three"), "user/bob").ok());
  EXPECT_TRUE(Submit(Wide("one"), "submit-one").ok()) << "a repeat is none";
  // Of another user they are not, and what has ended counts no more.
  EXPECT_TRUE(coordinator_->jobs()
                  ->Submit({"user/bob", "b", "SubmitJob", "b"}, Wide("bobs"),
                           "user/bob", Encode)
                  .ok());
  ASSERT_TRUE(Cancel("two").ok());
  MustSubmit(Wide("three"));
  ASSERT_TRUE(Cancel("three").ok());
  JobSpec large = Wide("large");
  large.environment.Edit()["X"] = std::string(90'000, 'x');
  MustSubmit(large);
  ASSERT_TRUE(Cancel("one").ok());
  JobSpec larger = Wide("larger");
  larger.environment = large.environment;
  const auto more = Submit(larger);
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(more.status()), HasSubstr("put long arguments"));
}

TEST_F(CoordinatorTest, SameIdWithOtherContentsIsRefused) {
  ASSERT_TRUE(Submit(Wide("j"), "r1").ok());
  const auto other = Submit(Wide("k"), "r1");
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(other.status()), "REQUEST_ID_REUSED");
  EXPECT_EQ(coordinator_->queries()->ListJobs().size(), 1u);
  EXPECT_EQ(coordinator_->jobs()
                ->CancelJob({"user/ann", "r1", "CancelJob", "j"}, "j", AllowAll,
                            Encode)
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  // Ids of somebody else are others.
  EXPECT_TRUE(coordinator_->jobs()
                  ->CancelJob({"user/bob", "r1", "CancelJob", "j"}, "j",
                              AllowAll, Encode)
                  .ok());
}

TEST_F(CoordinatorTest, RequestIdsAreForgottenAfterADay) {
  ASSERT_TRUE(Submit(Wide("j"), "r1").ok());
  clock_.Advance(24h);
  ASSERT_TRUE(Submit(Wide("k"), "r2").ok());
  EXPECT_TRUE(Submit(Wide("j"), "r1").ok()) << "exactly a day";
  clock_.Advance(1h);
  ASSERT_TRUE(Submit(Wide("l"), "r3").ok());
  EXPECT_EQ(Submit(Wide("j"), "r1").status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(CoordinatorTest, NamesAreUsedOnce) {
  ASSERT_TRUE(Submit(Wide("j"), "r1").ok());
  EXPECT_EQ(ReasonOf(Submit(Wide("j"), "r2").status()), "JOB_EXISTS");
  ASSERT_TRUE(Cancel("j").ok());
  EXPECT_EQ(ReasonOf(Submit(Wide("j"), "r3").status()), "JOB_EXISTS");
  EXPECT_EQ(
      ReasonOf(coordinator_->jobs()->Plan(Wide("j"), "user/ann").status()),
      "JOB_EXISTS");
}

TEST_F(CoordinatorTest, JobThatCanNeverFitIsRefusedAndNotStored) {
  Connect(&a_);
  JobSpec spec = Wide("j");
  spec.roles.Edit()[0].resources.cpus = 64;
  const int64_t version = coordinator_->queries()->version();
  EXPECT_EQ(ReasonOf(Submit(spec).status()), "NEVER_FITS");
  EXPECT_THAT(coordinator_->queries()->ListJobs(), IsEmpty());
  EXPECT_EQ(coordinator_->queries()->version(), version);
}

TEST_F(CoordinatorTest, ProgramsThatShareADirectoryAreToldSo) {
  JobSpec first = Wide("first");
  first.kind = JobKind::kProgram;
  first.output_directory = "/out/x";
  MustSubmit(first);
  const auto notes = [this](const JobName& name) {
    std::vector<std::string> notes;
    for (const Event& event : Get(name).events) {
      if (event.message.find("writes to") != std::string::npos) {
        notes.push_back(event.message);
      }
    }
    return notes;
  };
  EXPECT_THAT(notes("first"), IsEmpty());
  JobSpec second = first;
  second.name = "second";
  second.output_directory = "/out//x/";
  MustSubmit(second);
  EXPECT_THAT(
      notes("second"),
      testing::ElementsAre(
          "job first, which has not ended, writes to /out//x/ too: each "
          "may replace what the other wrote"));
  JobSpec third = first;
  third.name = "third";
  third.output_directory = "/out/y";
  MustSubmit(third);
  EXPECT_THAT(notes("third"), IsEmpty());
}

TEST_F(CoordinatorTest, TwoNativeJobsDoNotWriteToOneDirectory) {
  JobSpec first = Wide("first");
  first.output_directory = "/out/x";
  MustSubmit(first);
  for (const char* same : {"/out/x", "/out//x/", "/out/./x"}) {
    JobSpec second = Wide("second");
    second.output_directory = same;
    EXPECT_EQ(ReasonOf(Submit(second).status()), "OUTPUT_IN_USE") << same;
  }
  JobSpec program = ProgramSpec("program", {Role(TaskType::kChief, 1)});
  program.output_directory = "/out/x";
  EXPECT_TRUE(Submit(program).ok()) << "what it does there is its own matter";
  ASSERT_TRUE(Cancel("first").ok());
  JobSpec second = Wide("second");
  second.output_directory = "/out/x";
  EXPECT_TRUE(Submit(second).ok());
}

TEST_F(CoordinatorTest, PlanChangesNothing) {
  auto plan = coordinator_->jobs()->Plan(Wide("j"), "user/ann");
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->placement, IsEmpty());
  EXPECT_THAT(plan->never_fits, IsEmpty());
  EXPECT_EQ(plan->waiting.reason, Reason::kNoNodes);
  Connect(&a_);
  Connect(&b_);
  const int64_t version = coordinator_->queries()->version();
  plan = coordinator_->jobs()->Plan(Wide("j"), "user/ann");
  ASSERT_TRUE(plan.ok());
  ASSERT_THAT(plan->placement, SizeIs(2));
  EXPECT_EQ(plan->placement[0].node, "a");
  EXPECT_EQ(plan->placement[1].node, "b");
  JobSpec large = Wide("j");
  large.roles.Edit()[0].resources.cpus = 64;
  plan = coordinator_->jobs()->Plan(large, "user/ann");
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->placement, IsEmpty());
  EXPECT_THAT(plan->never_fits, SizeIs(1));
  EXPECT_EQ(coordinator_->queries()->version(), version);
  EXPECT_THAT(coordinator_->queries()->ListJobs(), IsEmpty());
}

TEST_F(CoordinatorTest, NearNamesAreOffered) {
  MustSubmit(Wide("mnist"));
  EXPECT_THAT(Message(coordinator_->queries()->GetJob("mnits").status()),
              HasSubstr("did you mean mnist?"));
  EXPECT_EQ(ReasonOf(Cancel("zzzzzzzz").status()), "NO_SUCH_JOB");
  Connect(&a_);
  EXPECT_EQ(ReasonOf(coordinator_->queries()->GetNode("x").status()),
            "NO_SUCH_NODE");
  EXPECT_TRUE(coordinator_->queries()->GetNode("a").ok());
}

TEST_F(CoordinatorTest, WhoMayNotChangeAJobDoesNot) {
  MustSubmit(Wide("j"));
  const auto nobody = [](const Job&) { return PermissionDenied("no"); };
  EXPECT_EQ(
      coordinator_->jobs()
          ->CancelJob({"user/bob", "x", "CancelJob", "j"}, "j", nobody, Encode)
          .status()
          .code(),
      StatusCode::kPermissionDenied);
  EXPECT_EQ(State("j"), JobState::kQueued);
}

TEST_F(CoordinatorTest, CheckpointDirectiveReachesTheSpeaker) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  const auto ask = [&](const std::string& id) {
    return coordinator_->jobs()->RequestCheckpoint(
        {"user/ann", id, "RequestCheckpoint", "j"}, "j", AllowAll, Encode);
  };
  EXPECT_EQ(ReasonOf(ask("1").status()), "NOT_RUNNING");
  Run();
  ASSERT_TRUE(ask("2").ok());
  ASSERT_TRUE(ask("2").ok()) << "a repeat";
  Run();
  EXPECT_THAT(a_.Find("j")->assignment.directives, SizeIs(1));
  a_.Find("j")->status.directive_done = 1;
  a_.Publish("j", 1, 40);
  Run();
  EXPECT_THAT(Get("j").directives, IsEmpty());
  EXPECT_EQ(Get("j").last_checkpoint->step, 40);
}

TEST_F(CoordinatorTest, AJobThatHoldsLooksAgainAndIsToldWhatToResumeFrom) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  const auto restore = [&](const std::string& id, const RestoreTarget& target) {
    return coordinator_->jobs()->RestoreJob({"user/ann", id, "RestoreJob", "j"},
                                            "j", target, AllowAll, Encode);
  };
  Run();
  EXPECT_EQ(ReasonOf(restore("1", {40}).status()), "NOT_HOLDING");
  const auto miss = [&] {
    ExitStatus exit = ExitCode(1);
    exit.reason = Reason::kNoCheckpoint;
    a_.Exit("j", 0, exit);
    Run();
    ASSERT_EQ(State("j"), JobState::kPlacing);
    EXPECT_EQ(Get("j").cause.reason, Reason::kNoCheckpoint);
  };
  miss();
  const Generation before = Get("j").generation;
  Pass(2s);
  EXPECT_EQ(Get("j").generation, before + 1) << "by itself";
  miss();
  ASSERT_TRUE(restore("2", {40}).ok());
  const Generation ordered = Get("j").generation;
  EXPECT_EQ(ordered, before + 2) << "at once";
  EXPECT_EQ(Get("j").restore, RestoreTarget{40});
  ASSERT_TRUE(restore("2", {40}).ok()) << "a repeat";
  Run();
  EXPECT_EQ(Get("j").generation, ordered);
  EXPECT_EQ(a_.Find("j")->assignment.spec->restore, RestoreTarget{40});
  EXPECT_EQ(b_.Find("j")->assignment.spec->restore, RestoreTarget{40});
  a_.Publish("j", ordered, 60);
  Run();
  EXPECT_FALSE(Get("j").restore);
}

// Two jobs that write checkpoints in one directory take them from each other.
TEST_F(CoordinatorTest, OutputDirectoryHasOneLiveJob) {
  Connect(&a_);
  Connect(&b_);
  JobSpec first = Wide("first");
  first.output_directory = "/out/shared";
  MustSubmit(first);
  JobSpec second = Wide("second");
  second.output_directory = "/out//shared/";
  const auto refused = Submit(second);
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused.status()), "OUTPUT_IN_USE");
  EXPECT_THAT(Message(refused.status()), HasSubstr("job first"));
  Run();
  a_.Exit("first", 0, ExitCode(0));
  b_.Exit("first", 1, ExitCode(0));
  Run();
  EXPECT_EQ(State("first"), JobState::kSucceeded);
  EXPECT_TRUE(Submit(second).ok()) << "it has ended";
}

TEST_F(CoordinatorTest, SubmissionKeepsWhatCameInAndItsEvents) {
  Submission submission;
  submission.spec = Wide("j");
  submission.training.emplace();
  submission.training->job_id = "j";
  submission.events = {"runtimeVersion: is 2.11 here"};
  const auto answer = coordinator_->jobs()->Submit(
      {"user/ann", "r1", "SubmitJob", "x"}, submission, "user/ann", Encode);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  const Job job = Get("j");
  EXPECT_EQ(job.training, submission.training);
  EXPECT_EQ(job.events.back().message, "runtimeVersion: is 2.11 here");
  // The first answer can be asked for before anything is looked at.
  const auto known =
      coordinator_->jobs()->AnswerTo({"user/ann", "r1", "SubmitJob", "x"});
  ASSERT_TRUE(known.ok() && *known);
  EXPECT_EQ(**known, *answer);
  EXPECT_EQ(coordinator_->jobs()
                ->AnswerTo({"user/ann", "r1", "SubmitJob", "y"})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      *coordinator_->jobs()->AnswerTo({"user/ann", "r2", "SubmitJob", "x"}),
      std::nullopt);
}

TEST_F(CoordinatorTest, LabelsAreChangedAtAnyTime) {
  JobSpec spec = Wide("j");
  spec.labels = {{"a", "1"}, {"b", "2"}};
  MustSubmit(spec);
  const auto update = [&](const JobUpdate& change, const std::string& id) {
    return coordinator_->jobs()->UpdateJob({"user/ann", id, "UpdateJob", id},
                                           "j", change, AllowAll, Encode);
  };
  const auto labels = [&] { return Get("j").spec.labels; };
  JobUpdate change;
  change.remove_labels = {"a", "none"};
  change.set_labels = {{"b", "3"}, {"c", ""}};
  ASSERT_TRUE(update(change, "u1").ok());
  EXPECT_EQ(labels(),
            (std::map<std::string, std::string>{{"b", "3"}, {"c", ""}}));
  // A repeat changes nothing, whatever came between.
  change = {};
  change.clear_labels = true;
  change.set_labels = {{"d", "4"}};
  change.version = Get("j").resource_version;
  ASSERT_TRUE(update(change, "u2").ok());
  EXPECT_EQ(labels(), (std::map<std::string, std::string>{{"d", "4"}}));
  const auto late = update(change, "u3");
  EXPECT_EQ(late.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(late.status()), "VERSION_CHANGED");
  ASSERT_TRUE(update(change, "u2").ok());
  // Of a job that has ended, too; its bill and place in the list stay.
  ASSERT_TRUE(Cancel("j").ok());
  ASSERT_EQ(State("j"), JobState::kCancelled);
  change.version = 0;
  change.set_labels = {{"e", "5"}};
  const Job before = Get("j");
  ASSERT_TRUE(update(change, "u4").ok());
  EXPECT_EQ(labels(), (std::map<std::string, std::string>{{"e", "5"}}));
  EXPECT_EQ(Get("j").bill, before.bill);
  EXPECT_EQ(Get("j").end_time, before.end_time);
  // Too many.
  change.set_labels.clear();
  for (int i = 0; i < 65; ++i) change.set_labels[fmt::format("k{}", i)] = "";
  EXPECT_EQ(update(change, "u5").status().code(), StatusCode::kInvalidArgument);
}

// Thousands of changes of one large job took gigabytes: each version had the
// whole of what was submitted.
TEST_F(CoordinatorTest, VersionsOfAJobShareWhatNeverChanges) {
  JobSpec spec = Wide("j");
  spec.environment.Edit()["X"] = std::string(120 << 10, 'x');
  spec.environment.Edit()["Y"] = std::string(120 << 10, 'y');
  MustSubmit(spec);
  const int64_t begin = coordinator_->queries()->version();
  constexpr int kUpdates = 1000;
  JobUpdate change;
  for (int i = 0; i < kUpdates; ++i) {
    const std::string id = std::to_string(i);
    change.set_labels = {{"n", id}};
    const auto updated = coordinator_->jobs()->UpdateJob(
        {"user/ann", id, "UpdateJob", id}, "j", change, AllowAll, Encode);
    ASSERT_TRUE(updated.ok()) << Message(updated.status());
  }
  // All of them are kept: at 240 KiB each it would have been 270.
  EXPECT_EQ(WatchHub::Watch(hub_.get(), "j", begin, [] {}).Behind(), kUpdates);
  const auto news = WatchHub::Watch(hub_.get(), "j", begin, [] {}).Take();
  ASSERT_TRUE(news.ok()) << Message(news.status());
  const JobSpec& first = news->changes.front().job->spec;
  const JobSpec& last = news->changes.back().job->spec;
  EXPECT_NE(first.labels, last.labels);
  EXPECT_EQ(first.environment.identity(), last.environment.identity());
  EXPECT_EQ(first.roles.identity(), last.roles.identity());
  EXPECT_EQ(first.environment, spec.environment);
}

TEST_F(CoordinatorTest, PriorityIsChangedUntilTheEnd) {
  MustSubmit(Wide("first"));
  clock_.Advance(1s);
  MustSubmit(Wide("second"));
  ASSERT_EQ(coordinator_->queries()->QueuePosition("first"), 1);
  JobUpdate update;
  update.priority = 7;
  const auto change = [&](const std::string& id) {
    return coordinator_->jobs()->UpdateJob({"user/root", id, "UpdateJob", id},
                                           "second", update, AllowAll, Encode);
  };
  ASSERT_TRUE(change("u1").ok());
  EXPECT_EQ(Get("second").spec.priority, 7);
  EXPECT_EQ(Get("second").events.back().message,
            "priority 7 instead of 0, by user/root");
  EXPECT_EQ(coordinator_->queries()->QueuePosition("second"), 1);
  EXPECT_EQ(coordinator_->queries()->QueuePosition("first"), 2);
  // Its old place is gone: once it has, nothing is left of it.
  ASSERT_TRUE(Cancel("second").ok());
  EXPECT_EQ(coordinator_->queries()->QueuePosition("first"), 1);
  update.priority = 9;
  EXPECT_EQ(change("u2").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorTest, QueuePositionsAreTheOrderOfScheduling) {
  for (const char* name : {"first", "second", "third"}) {
    JobSpec spec = Wide(name);
    if (name == std::string("third")) spec.priority = 5;
    MustSubmit(spec);
    clock_.Advance(1ms);
  }
  EXPECT_EQ(coordinator_->queries()->QueuePosition("third"), 1);
  EXPECT_EQ(coordinator_->queries()->QueuePosition("first"), 2);
  EXPECT_EQ(coordinator_->queries()->QueuePosition("second"), 3);
  EXPECT_EQ(coordinator_->queries()->QueuePosition("none"), 0);
  for (const JobSnapshot& job : coordinator_->queries()->ListJobs()) {
    EXPECT_EQ(job.queue_position,
              coordinator_->queries()->QueuePosition(job.job->spec.name));
  }
  Connect(&a_);
  Connect(&b_);
  Run();
  EXPECT_EQ(State("third"), JobState::kRunning);
  EXPECT_EQ(coordinator_->queries()->QueuePosition("third"), 0);
  EXPECT_EQ(coordinator_->queries()->QueuePosition("first"), 1);
  ASSERT_TRUE(Cancel("first").ok());
  EXPECT_EQ(coordinator_->queries()->QueuePosition("second"), 1);
}

TEST_F(CoordinatorTest, WaitingJobsSayWhenTheyAreExpectedToStart) {
  JobSpec first = Wide("first");
  first.max_running_time = std::chrono::minutes(10);
  MustSubmit(first);
  Connect(&a_);
  Connect(&b_);
  Run();
  ASSERT_EQ(State("first"), JobState::kRunning);
  MustSubmit(Wide("second"));
  Run();
  ASSERT_EQ(State("second"), JobState::kQueued);
  const auto job = coordinator_->queries()->GetJob("second");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->expected_start,
            *Get("first").start_time + std::chrono::minutes(10));
  for (const JobSnapshot& listed : coordinator_->queries()->ListJobs()) {
    EXPECT_EQ(listed.expected_start.has_value(),
              listed.job->spec.name == "second");
  }
}

TEST_F(CoordinatorTest, PackagesAreNeededUntilTheJobHasEnded) {
  RoleSpec worker;
  worker.type = TaskType::kWorker;
  worker.resources.cpus = 1;
  JobSpec spec = ProgramSpec("j", {worker});
  const std::string digest = "sha256:" + std::string(64, 'a');
  spec.packages = {{digest, 1, PackageFormat::kTree, "a.tar.gz"}};
  MustSubmit(spec);
  EXPECT_THAT(coordinator_->queries()->NeededPackages(), ElementsAre(digest));
  ASSERT_TRUE(Cancel("j").ok());
  EXPECT_THAT(coordinator_->queries()->NeededPackages(), IsEmpty());
}

TEST_F(CoordinatorTest, NewPricesCountFromNowOn) {
  Connect(&a_);
  Connect(&b_);
  MustSubmit(Wide("j"));
  Run();
  Prices prices;
  prices.currency = "EUR";
  prices.core_hour = 3600;
  coordinator_->SetPrices(prices);
  Pass(10s);
  const auto bill = coordinator_->queries()->GetJob("j")->bill;
  EXPECT_EQ(bill.currency, "EUR");
  EXPECT_DOUBLE_EQ(bill.cost, bill.core_seconds);
  EXPECT_EQ(coordinator_->queries()->View(1s).prices.currency, "EUR");
}

}  // namespace
}  // namespace lockstep::server
