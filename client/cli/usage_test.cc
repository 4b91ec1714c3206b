#include "client/cli/usage.h"

#include <gtest/gtest.h>

#include "client/cli/signs_text.h"

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
                             UsageBy::kUser, WallTime(1h));
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
}

TEST(UsageTest, JobsThatEndedBeforeAreLeftOut) {
  const std::vector<v1::Job> jobs = {JobOf("a", "ann", 100),
                                     JobOf("b", "ann", 7200)};
  const auto sums = SumUsage(jobs, UsageBy::kJob, WallTime(1h));
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_TRUE(sums.contains("b"));
  EXPECT_EQ(SumUsage(jobs, UsageBy::kPool, WallTime()).at("any").jobs, 2);
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
