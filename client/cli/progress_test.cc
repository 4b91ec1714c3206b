#include "client/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStart = 1'767'225'600;

// `seconds` after the job was submitted.
Time At(double seconds) {
  return {MonoTime(Seconds(1000 + seconds)),
          FromUnixNanos(kStart * 1'000'000'000) + Seconds(seconds)};
}

v1::Job JobIn(v1::JobState state, int64_t since) {
  v1::Job job;
  job.set_name("a");
  job.set_state(state);
  job.set_generation(1);
  job.mutable_state_time()->set_seconds(kStart + since);
  return job;
}

void Phase(const char* name, int64_t seconds, v1::Job* job) {
  v1::PhaseDuration* const phase = job->add_phases();
  phase->set_phase(name);
  phase->mutable_duration()->set_seconds(seconds);
}

v1::JobProgress Progress(int64_t step, int64_t total) {
  v1::JobProgress progress;
  progress.mutable_chief()->set_committed_step(step);
  progress.mutable_chief()->set_total_steps(total);
  progress.mutable_chief()->set_loss(0.4321);
  progress.set_samples_per_second(3170.2);
  progress.mutable_eta()->set_seconds(80);
  return progress;
}

TEST(ProgressTest, Text) {
  EXPECT_EQ(ProgressText(Progress(1200, 2400)),
            "step 1,200/2,400 (50 %)  3,170 samples/s  loss 0.4321  eta 1 m 20 "
            "s");
  v1::JobProgress unknown;
  unknown.mutable_chief()->set_committed_step(-1);
  EXPECT_EQ(ProgressText(unknown), "step 0");
}

TEST(ProgressTest, AProgramsOwnBarIsShownWhileItRuns) {
  FollowPrinter printer(/*is_tty=*/true, 40, Style{});
  printer.SetProgramLine("\x1b[32m50%\x1b[0m|####    | 5/10");
  // Not of the attempt before.
  EXPECT_EQ(printer.OnJob(JobIn(v1::JOB_STATE_FORMING, 0), At(2)),
            "\r\x1b[K  forming     2.0 s");
  EXPECT_EQ(printer.OnJob(JobIn(v1::JOB_STATE_RUNNING, 0), At(3)),
            "\r\x1b[K  running     3.0 s  50%|####    | 5/10");
  printer.SetProgramLine("\u2588\u2588 much more than a terminal has room for");
  const std::string cut = printer.OnTick(At(4));
  EXPECT_EQ(VisibleWidth(cut.substr(4)), 39u) << cut;
  EXPECT_TRUE(IsUtf8(cut));
  // What is known of steps is better.
  EXPECT_THAT(printer.OnProgress(Progress(1200, 2400), At(5)),
              HasSubstr("step 1,200/2,400"));
}

TEST(ProgressTest, BarIsCutAtTheTerminalsEdge) {
  EXPECT_EQ(ProgressBar(Progress(1200, 2400), 200),
            "[============>           ] step 1,200/2,400 (50 %)  3,170 "
            "samples/s  loss 0.4321  eta 1 m 20 s");
  EXPECT_EQ(ProgressBar(Progress(2400, 2400), 200).substr(0, 26),
            "[========================]");
  EXPECT_EQ(ProgressBar(Progress(1200, 2400), 80).substr(0, 17),
            "[====>    ] step ");
  EXPECT_EQ(ProgressBar(Progress(1200, 2400), 40).size(), 39u);
}

TEST(FollowPrinterTest, PlainLinesAtChangesAndEveryTenSeconds) {
  FollowPrinter printer(false, 80, Style{});
  v1::Job job = JobIn(v1::JOB_STATE_QUEUED, 0);
  job.mutable_cause()->set_message("no node is free");
  EXPECT_EQ(printer.OnJob(job, At(1)),
            "  queued      1.0 s  no node is free\n");
  EXPECT_EQ(printer.OnJob(job, At(2)), "");
  EXPECT_EQ(printer.OnTick(At(5)), "");
  EXPECT_EQ(printer.OnTick(At(11.5)),
            "  queued      11.5 s  no node is free\n");
  job = JobIn(v1::JOB_STATE_RUNNING, 12);
  Phase("queued", 12, &job);
  Phase("running", 0, &job);
  EXPECT_EQ(printer.OnJob(job, At(12)), "  queued      12.0 s\n");
  EXPECT_THAT(printer.OnProgress(Progress(1, 10), At(13)),
              HasSubstr("step 1/10 (10 %)"));
  EXPECT_EQ(printer.OnProgress(Progress(2, 10), At(14)), "");
  EXPECT_THAT(printer.OnProgress(Progress(2, 10), At(23)),
              HasSubstr("step 2/10 (20 %)"));
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_phases(1)->mutable_duration()->set_seconds(20);
  EXPECT_EQ(printer.OnJob(job, At(32)), "  running     20.0 s\n");
  EXPECT_EQ(printer.OnTick(At(60)), "");
}

TEST(FollowPrinterTest, ALineThatIsRedrawnIsPrintedOnceASecond) {
  FollowPrinter printer(false, 80, Style{});
  const v1::Job job = JobIn(v1::JOB_STATE_RUNNING, 0);
  printer.OnJob(job, At(0));
  printer.SetProgramLine("1/30");
  EXPECT_THAT(printer.OnTick(At(1.1)), HasSubstr("1/30"));
  printer.SetProgramLine("2/30");
  EXPECT_EQ(printer.OnTick(At(1.9)), "");
  EXPECT_THAT(printer.OnTick(At(2.2)), HasSubstr("2/30"));
  // The same line says nothing new.
  EXPECT_EQ(printer.OnTick(At(5)), "");
}

TEST(FollowPrinterTest, WhatIsOldSaysSo) {
  FollowPrinter printer(true, 120, Style{});
  printer.OnJob(JobIn(v1::JOB_STATE_RUNNING, 0), At(0));
  printer.OnProgress(Progress(1, 10), At(1));
  EXPECT_EQ(printer.OnTick(At(5)).find("as of"), std::string::npos);
  EXPECT_THAT(printer.OnTick(At(13)), HasSubstr("(as of 12s ago)"));
  EXPECT_EQ(printer.OnProgress(Progress(2, 10), At(14)).find("as of"),
            std::string::npos);
}

TEST(FollowPrinterTest, RestartIsToldWithItsReason) {
  FollowPrinter printer(false, 80, Style{});
  v1::Job job = JobIn(v1::JOB_STATE_RUNNING, 0);
  printer.OnJob(job, At(0));
  job = JobIn(v1::JOB_STATE_PREPARING, 10);
  job.set_generation(2);
  Phase("running", 10, &job);
  v1::Attempt* const attempt = job.add_attempts();
  attempt->set_ordinal(1);
  attempt->mutable_end_cause()->set_message("rank 1 was killed by signal 9");
  EXPECT_EQ(printer.OnJob(job, At(10)),
            "  running     10.0 s\n"
            "  attempt 1 ended: rank 1 was killed by signal 9\n");
}

TEST(FollowPrinterTest, TerminalLineIsWrittenOver) {
  FollowPrinter printer(true, 80, Style{});
  EXPECT_EQ(printer.OnJob(JobIn(v1::JOB_STATE_FORMING, 0), At(1)),
            "\r\x1b[K  forming     1.0 s");
  EXPECT_EQ(printer.OnTick(At(1.2)), "\r\x1b[K  forming     1.2 s");
  v1::Job job = JobIn(v1::JOB_STATE_RUNNING, 2);
  Phase("forming", 2, &job);
  EXPECT_EQ(printer.OnJob(job, At(2)),
            "\r\x1b[K  forming     2.0 s\n\r\x1b[K  running     0 ms");
  EXPECT_THAT(printer.OnProgress(Progress(1, 10), At(3)),
              HasSubstr("\r\x1b[K[=>"));
  EXPECT_EQ(printer.Finish(), "\r\x1b[K");
}

}  // namespace
}  // namespace lockstep::cli
