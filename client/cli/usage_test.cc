#include "client/cli/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/describe.h"
#include "client/cli/signs_text.h"
#include "tests/support/fake_clock.h"

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""h;

// One task of one rank with two GPUs.
v1::Job JobOf(const std::string& name, const std::string& owner,
              int64_t end_seconds) {
  v1::Job job;
  job.set_name(name);
  job.set_owner(owner);
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.mutable_end_time()->set_seconds(end_seconds);
  job.mutable_bill()->set_core_seconds(7200);
  job.mutable_bill()->set_gpu_seconds(3600);
  job.mutable_bill()->set_cost(1.5);
  job.mutable_bill()->set_currency("EUR");
  v1::TaskStatus* const task = job.add_tasks();
  task->add_gpus(0);
  task->add_gpus(1);
  v1::RankStatus* const rank = task->add_ranks();
  rank->mutable_usage()->set_cpu_seconds(1800);
  rank->mutable_usage()->set_seconds(1800);
  rank->mutable_usage()->set_gpu_utilization(0.25);
  return job;
}

TEST(UsageTest, HeldAndUsedAreSummedByUser) {
  const auto sums = SumUsage({JobOf("a", "ann", 7200), JobOf("b", "ann", 7200),
                              JobOf("c", "bob", 7200)},
                             UsageBy::kUser, {WallTime(1h), WallTime(2h)});
  ASSERT_EQ(sums.size(), 2u);
  const UsageSum& ann = sums.at("ann");
  EXPECT_EQ(ann.jobs, 2);
  EXPECT_DOUBLE_EQ(ann.held_core_seconds, 14400);
  EXPECT_DOUBLE_EQ(ann.used_core_seconds, 3600);
  EXPECT_DOUBLE_EQ(ann.held_gpu_seconds, 7200);
  EXPECT_DOUBLE_EQ(ann.used_gpu_seconds, 2 * 0.25 * 1800 * 2);
  EXPECT_DOUBLE_EQ(ann.cost.at("EUR"), 3);
  const Table table = UsageTable(sums, UsageBy::kUser);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0][0], "ann");
  EXPECT_EQ(table.rows[2][0], "total");
  EXPECT_EQ(table.rows[2][2], "6.00");
  EXPECT_EQ(table.rows[2][4], "25 %");
  EXPECT_EQ(table.rows[2][8], "4.50 EUR");
  EXPECT_EQ(table.rows[2][9], "1.12 EUR") << "a quarter of its GPU time";
}

TEST(UsageTest, TheUsedCostOfAJobWithoutGpusIsThatOfItsCores) {
  v1::Job job = JobOf("a", "ann", 7200);
  job.mutable_bill()->clear_gpu_seconds();
  job.mutable_tasks(0)->clear_gpus();
  const auto sums =
      SumUsage({job}, UsageBy::kJob, {WallTime(1h), WallTime(2h)});
  EXPECT_DOUBLE_EQ(sums.at("a").used_cost.at("EUR"), 1.5 / 4);
  EXPECT_EQ(UsageTable(sums, UsageBy::kJob).rows[0][7], "-");
}

// No reading is no sign of an idle GPU.
TEST(UsageTest, GpusWithoutReadingsAreNotCalledIdle) {
  v1::Job job = JobOf("a", "ann", 7200);
  job.mutable_tasks(0)
      ->mutable_ranks(0)
      ->mutable_usage()
      ->clear_gpu_utilization();
  auto sums = SumUsage({job}, UsageBy::kUser, {WallTime(1h), WallTime(2h)});
  Table table = UsageTable(sums, UsageBy::kUser);
  EXPECT_EQ(table.rows[0][6], "?");
  EXPECT_EQ(table.rows[0][7], "?");
  EXPECT_EQ(table.rows[0][9], ">0.00 EUR");
  sums = SumUsage({job, JobOf("b", "ann", 7200)}, UsageBy::kUser,
                  {WallTime(1h), WallTime(2h)});
  table = UsageTable(sums, UsageBy::kUser);
  EXPECT_EQ(table.rows[0][6], ">0.25");
  EXPECT_EQ(table.rows[0][9], ">0.38 EUR");
}

TEST(UsageTest, JobsThatEndedBeforeAreLeftOut) {
  const std::vector<v1::Job> jobs = {JobOf("a", "ann", 100),
                                     JobOf("b", "ann", 7200)};
  const auto sums = SumUsage(jobs, UsageBy::kJob, {WallTime(1h), WallTime(2h)});
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_TRUE(sums.contains("b"));
  EXPECT_EQ(
      SumUsage(jobs, UsageBy::kPool, {WallTime(), WallTime(2h)}).at("any").jobs,
      2);
}

// Two cores, a GPU, and 3 EUR for an hour of them.
void SetBill(double hours, v1::Job* job) {
  job->mutable_bill()->set_core_seconds(2 * hours * 3600);
  job->mutable_bill()->set_gpu_seconds(hours * 3600);
  job->mutable_bill()->set_cost(3 * hours);
  job->mutable_bill()->set_currency("EUR");
}

// Hours count from the submission, which is at the clock's start.
class WindowTest : public testing::Test {
 protected:
  WindowTest() {
    job_.set_name("a");
    job_.set_owner("ann");
    *job_.mutable_create_time() = Hour(0);
  }
  google::protobuf::Timestamp Hour(int hour) const {
    google::protobuf::Timestamp time;
    time.set_seconds(ToUnixNanos(start_) / 1'000'000'000 + hour * 3600);
    return time;
  }
  // A rank with one GPU, which was half busy, and a core that was all busy.
  void AddAttempt(int start, int end) {
    v1::Attempt* const attempt = job_.add_attempts();
    attempt->set_ordinal(job_.attempts_size());
    attempt->set_generation(static_cast<uint64_t>(job_.attempts_size()));
    *attempt->mutable_start_time() = Hour(start);
    *attempt->mutable_end_time() = Hour(end);
    v1::TaskStatus* const task = attempt->add_tasks();
    task->add_gpus(0);
    v1::Usage* const usage = task->add_ranks()->mutable_usage();
    usage->set_seconds((end - start) * 3600);
    usage->set_cpu_seconds((end - start) * 3600);
    usage->set_gpu_utilization(0.5);
  }
  void End(int hour) {
    job_.set_state(v1::JOB_STATE_SUCCEEDED);
    job_.set_attempt(job_.attempts_size());
    job_.set_generation(static_cast<uint64_t>(job_.attempts_size()));
    *job_.mutable_end_time() = Hour(hour);
  }
  // The last `hours` before hour `now`.
  UsageSum Last(std::chrono::hours hours, std::chrono::hours now) {
    clock_.Advance(start_ + now - clock_.Now().wall);
    const WallTime wall = clock_.Now().wall;
    return SumUsage({job_}, UsageBy::kUser, {wall - hours, wall}).at("ann");
  }

  lockstep::FakeClock clock_;
  const WallTime start_ = clock_.Now().wall;
  v1::Job job_;
};

TEST_F(WindowTest, AnAttemptWithinCountsWholeAndOneBeforeNotAtAll) {
  AddAttempt(1, 3);
  AddAttempt(10, 14);
  SetBill(6, &job_);
  End(14);
  const UsageSum sum = Last(10h, 16h);
  EXPECT_DOUBLE_EQ(sum.held_core_seconds, 2 * 4 * 3600);
  EXPECT_DOUBLE_EQ(sum.held_gpu_seconds, 4 * 3600);
  EXPECT_DOUBLE_EQ(sum.used_core_seconds, 4 * 3600);
  EXPECT_DOUBLE_EQ(sum.used_gpu_seconds, 2 * 3600);
  EXPECT_DOUBLE_EQ(sum.cost.at("EUR"), 12);
  EXPECT_FALSE(sum.used_estimated);
  EXPECT_FALSE(sum.held_estimated);
}

TEST_F(WindowTest, AnAttemptThatBeganBeforeIsClipped) {
  AddAttempt(2, 12);
  SetBill(10, &job_);
  End(12);
  const UsageSum sum = Last(6h, 15h);  // 9 to 12.
  EXPECT_DOUBLE_EQ(sum.held_core_seconds, 2 * 3 * 3600);
  EXPECT_DOUBLE_EQ(sum.held_gpu_seconds, 3 * 3600);
  EXPECT_DOUBLE_EQ(sum.cost.at("EUR"), 9);
  EXPECT_DOUBLE_EQ(sum.used_core_seconds, 3 * 3600);
  EXPECT_DOUBLE_EQ(sum.used_gpu_seconds, 1.5 * 3600);
  EXPECT_FALSE(sum.held_estimated);
  EXPECT_TRUE(sum.used_estimated);
  const Table table = UsageTable({{"ann", sum}}, UsageBy::kUser);
  EXPECT_EQ(table.rows[0][2], "6.00");
  EXPECT_EQ(table.rows[0][3], "~3.00");
  EXPECT_EQ(table.rows[0][8], "9.00 EUR");
}

TEST_F(WindowTest, ARunningAttemptIsClippedFromItsFirstEvent) {
  AddAttempt(0, 2);
  job_.set_state(v1::JOB_STATE_RUNNING);
  job_.set_attempt(2);
  job_.set_generation(2);
  v1::Event* const event = job_.add_events();
  event->set_generation(2);
  *event->mutable_time() = Hour(4);
  *job_.mutable_state_time() = Hour(5);
  SetBill(2 + 8, &job_);
  v1::TaskStatus* const task = job_.add_tasks();
  task->add_ranks()->mutable_usage()->set_cpu_seconds(8 * 3600);
  const UsageSum sum = Last(2h, 12h);
  EXPECT_DOUBLE_EQ(sum.held_core_seconds, 2 * 2 * 3600);
  EXPECT_DOUBLE_EQ(sum.used_core_seconds, 2 * 3600);
  EXPECT_TRUE(sum.used_estimated);
  // The clock goes on, and the window with it.
  EXPECT_DOUBLE_EQ(Last(12h, 12h).held_core_seconds, 2 * 10 * 3600);
  EXPECT_FALSE(Last(12h, 12h).used_estimated);
}

TEST_F(WindowTest, OfOlderAttemptsOnlyTheSumIsKnown) {
  AddAttempt(8, 10);
  job_.mutable_attempts(0)->set_ordinal(21);
  SetBill(10, &job_);
  End(10);
  job_.set_attempt(21);
  const UsageSum sum = Last(2h, 10h);
  EXPECT_DOUBLE_EQ(sum.held_gpu_seconds, 2 * 3600);
  EXPECT_TRUE(sum.held_estimated);
  EXPECT_FALSE(sum.used_estimated);
  EXPECT_EQ(UsageTable({{"ann", sum}}, UsageBy::kUser).rows[0][5], "~2.00");
  EXPECT_DOUBLE_EQ(Last(10h, 10h).held_gpu_seconds, 10 * 3600);
  EXPECT_FALSE(Last(10h, 10h).held_estimated);
}

TEST_F(WindowTest, AJobThatOnlyWaitedHeldNothing) {
  job_.set_state(v1::JOB_STATE_QUEUED);
  const UsageSum sum = Last(1h, 5h);
  EXPECT_EQ(sum.jobs, 1);
  EXPECT_DOUBLE_EQ(sum.held_core_seconds, 0);
  EXPECT_FALSE(sum.held_estimated);
}

TEST_F(WindowTest, AWholeTotalIsAnEstimateIfOneRowIs) {
  AddAttempt(2, 12);
  SetBill(10, &job_);
  End(12);
  UsageSum exact;
  exact.held_core_seconds = 3600;
  const Table table =
      UsageTable({{"ann", Last(6h, 15h)}, {"bob", exact}}, UsageBy::kUser);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[1][3], "0.00");
  EXPECT_EQ(table.rows[2][2], "7.00");
  EXPECT_EQ(table.rows[2][3], "~3.00");
}

TEST_F(WindowTest, DescribeShowsTheWholeJobAsTheTableDoes) {
  AddAttempt(2, 12);
  SetBill(10, &job_);
  End(12);
  // Long ago: of one job all its time counts.
  clock_.Advance(24h * 400);
  const std::string text = FormatJob(job_, clock_.Now().wall, Style{});
  EXPECT_THAT(text, testing::ContainsRegex(
                        "CORE-H HELD +CORE-H USED +USED +GPU-H HELD +GPU-H "
                        "USED +GPU USED +COST +COST USED"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "20\\.00 +10\\.00 +50 % +10\\.00 +5\\.00 +50 % +"
                        "30\\.00 EUR"));
  // What strangers do not see is not shown as zero.
  job_.set_details_hidden(true);
  EXPECT_THAT(FormatJob(job_, clock_.Now().wall, Style{}),
              testing::Not(testing::HasSubstr("CORE-H USED")));
}

TEST(SignsTextTest, TheBestSourceIsShown) {
  v1::Job job;
  EXPECT_EQ(SignsText(job), "");
  job.set_state(v1::JOB_STATE_RUNNING);
  for (const auto source :
       {v1::SIGN_SOURCE_ACTIVITY, v1::SIGN_SOURCE_LOG, v1::SIGN_SOURCE_FILES}) {
    v1::ProgressSigns* const signs =
        job.add_tasks()->add_ranks()->mutable_progress()->mutable_signs();
    signs->set_source(source);
    signs->mutable_still()->set_seconds(3);
    signs->mutable_limit()->set_seconds(60);
    if (source != v1::SIGN_SOURCE_LOG) continue;
    signs->set_log_step(120);
    signs->set_log_total(1000);
    signs->mutable_usual()->set_seconds(1);
  }
  EXPECT_EQ(SignsText(job),
            "log: step 120/1,000, the last sign " +
                FormatDuration(std::chrono::seconds(3)) +
                " ago, usually within " +
                FormatDuration(std::chrono::seconds(1)) + ", stalled after " +
                FormatDuration(std::chrono::seconds(60)) + " without one");
}

}  // namespace
}  // namespace lockstep::cli
