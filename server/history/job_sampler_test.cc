#include "server/history/job_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/history/history_test_util.h"

namespace lockstep::server {
namespace {

using std::chrono::seconds;

TEST(JobSamplerTest, ANativeJobHasSpeedLossAndPhases) {
  JobSnapshot job = RunningJob("train", 2);
  JobSampler sampler;
  Pass(seconds(1), 2, 4, &job);
  sampler.Take(job, {});
  job.progress->chief.values["accuracy"] = 0.75;
  job.progress->chief.values[kFlopsPerSample] = 1e9;
  job.live[0].progress.phases.compute = 0.75;
  job.live[1].progress.phases.allreduce = 0.25;
  job.live[1].progress.phases.compile = 0.25;
  Pass(seconds(1), 2, 4, &job);
  JobSample sample = sampler.Take(job, {});
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepsPerSecond), 4);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kSamplesPerSecond), 128);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepMedian), 0.25);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepP99), 0.25);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kLoss), 1.0F / 9);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kCompute), 0.6);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kAllReduce), 0.2);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kCompile), 0.2);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kCpu), 4);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kMemory), 2.0F * (1 << 30));
  EXPECT_FALSE(IsKnown(sample.Of(JobSeries::kGpu)));
  EXPECT_THAT(sample.values,
              testing::ElementsAre(testing::Pair("accuracy", 0.75F)));
}

// A slow step sets the 99th percentile, not the median.
TEST(JobSamplerTest, StepTimesHavePercentiles) {
  JobSnapshot job = RunningJob("train", 1);
  JobSampler sampler;
  for (int i = 0; i < 40; ++i) {
    Pass(seconds(i == 20 ? 8 : 1), 1, 2, &job);
    sampler.Take(job, {});
  }
  JobSample sample = sampler.Take(job, {});
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepMedian), 0.5);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepP99), 4);
}

TEST(JobSamplerTest, AProgramThatHasNotJoinedHasTheStepsOfItsLog) {
  JobSnapshot job = RunningJob("plain", 1, JobKind::kProgram);
  ProgressSigns signs;
  signs.log_step = 100;
  JobSampler sampler;
  job.live[0].progress.signs = signs;
  Pass(seconds(1), 1, 0, &job);
  EXPECT_FALSE(IsKnown(sampler.Take(job, {}).Of(JobSeries::kStepsPerSecond)));
  Pass(seconds(5), 1, 0, &job);
  job.live[0].progress.signs->log_step = 150;
  JobSample sample = sampler.Take(job, {});
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepsPerSecond), 10);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepMedian), 0.1F);
  EXPECT_FALSE(IsKnown(sample.Of(JobSeries::kLoss)));
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kCpu), 1);
  // It holds between log lines, and ends when none comes for long.
  Pass(seconds(10), 1, 0, &job);
  EXPECT_FLOAT_EQ(sampler.Take(job, {}).Of(JobSeries::kStepsPerSecond), 10);
  Pass(seconds(30), 1, 0, &job);
  EXPECT_EQ(sampler.Take(job, {}).Of(JobSeries::kStepsPerSecond), 0);
}

TEST(JobSamplerTest, RanksHaveTheirOwnGpus) {
  JobSnapshot job = RunningJob("train", 2);
  JobSampler sampler;
  NodeSnapshot node;
  node.member.info.name = "a";
  node.member.state = NodeState::kReady;
  node.member.readings.gpus.resize(2);
  node.member.readings.gpus[0].utilization = 0.25;
  node.member.readings.gpus[1].index = 1;
  node.member.readings.gpus[1].utilization = 0.75;
  JobSample sample = sampler.Take(job, GpusOf({node}));
  ASSERT_EQ(sample.ranks.size(), 2U);
  EXPECT_FLOAT_EQ(sample.ranks[0].series[1], 0.25);
  EXPECT_FLOAT_EQ(sample.ranks[1].series[1], 0.75);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kGpu), 0.5);
  // The readings of a silent host are old.
  node.member.state = NodeState::kUnknown;
  EXPECT_FALSE(IsKnown(sampler.Take(job, GpusOf({node})).Of(JobSeries::kGpu)));
}

TEST(JobSamplerTest, ARestartIsNoJump) {
  JobSnapshot job = RunningJob("train", 1);
  JobSampler sampler;
  Pass(seconds(100), 8, 1000, &job);
  sampler.Take(job, {});
  Job next = *job.job;
  next.generation = 2;
  job.job = std::make_shared<const Job>(next);
  job.live[0].usage = {};
  job.progress->chief.committed_step = 900;
  Pass(seconds(1), 1, 0, &job);
  JobSample sample = sampler.Take(job, {});
  EXPECT_FALSE(IsKnown(sample.Of(JobSeries::kCpu)));
  EXPECT_FALSE(IsKnown(sample.Of(JobSeries::kStepsPerSecond)));
  Pass(seconds(1), 1, 5, &job);
  sample = sampler.Take(job, {});
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kCpu), 1);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kStepsPerSecond), 5);
}

TEST(JobSamplerTest, OldReadingsAreNotShownForEver) {
  JobSnapshot job = RunningJob("train", 1);
  JobSampler sampler;
  Pass(seconds(1), 1, 1, &job);
  sampler.Take(job, {});
  Pass(seconds(1), 1, 1, &job);
  sampler.Take(job, {});
  job.time += seconds(5);
  EXPECT_FLOAT_EQ(sampler.Take(job, {}).Of(JobSeries::kCpu), 1);
  job.time += seconds(6);
  EXPECT_FALSE(IsKnown(sampler.Take(job, {}).Of(JobSeries::kCpu)));
}

TEST(JobSamplerTest, TheNetworkOfEachRankAndOfAll) {
  JobSnapshot job = RunningJob("train", 2);
  JobSampler sampler;
  const auto carry = [&](int32_t rank, int64_t sent, int64_t received) {
    Usage& usage = job.live[rank].usage;
    usage.network_sent_bytes = usage.network_sent_bytes.value_or(0) + sent;
    usage.network_received_bytes =
        usage.network_received_bytes.value_or(0) + received;
  };
  Pass(seconds(1), 1, 1, &job);
  carry(0, 0, 0);
  EXPECT_FALSE(IsKnown(sampler.Take(job, {}).Of(JobSeries::kNetwork)));
  Pass(seconds(2), 1, 1, &job);
  carry(0, 1000, 3000);
  carry(1, 50, 50);
  JobSample sample = sampler.Take(job, {});
  ASSERT_EQ(sample.ranks.size(), 2U);
  const auto network = static_cast<size_t>(RankSeries::kNetwork);
  EXPECT_FLOAT_EQ(sample.ranks[0].series[network], 2000);
  EXPECT_FALSE(IsKnown(sample.ranks[1].series[network])) << "its first reading";
  Pass(seconds(1), 1, 1, &job);
  carry(0, 0, 0);
  carry(1, 300, 0);
  sample = sampler.Take(job, {});
  EXPECT_FLOAT_EQ(sample.ranks[0].series[network], 0);
  EXPECT_FLOAT_EQ(sample.ranks[1].series[network], 300);
  EXPECT_FLOAT_EQ(sample.Of(JobSeries::kNetwork), 300);
  // Its host cannot tell any more.
  Pass(seconds(1), 1, 1, &job);
  job.live[0].usage.network_sent_bytes.reset();
  sample = sampler.Take(job, {});
  EXPECT_FALSE(IsKnown(sample.ranks[0].series[network]));
}

TEST(JobSamplerTest, ManyRanksAndValuesAreBounded) {
  JobSnapshot job = RunningJob("train", kMaxRanksInHistory + 10);
  Pass(seconds(1), 1, 1, &job);
  for (int i = 0; i < 100; ++i) {
    job.progress->chief.values[fmt::format("value-{:03}", i)] = i;
  }
  const JobSample sample = JobSampler().Take(job, {});
  EXPECT_EQ(sample.ranks.size(), static_cast<size_t>(kMaxRanksInHistory));
  EXPECT_EQ(sample.values.size(), kMaxValuesInHistory);
}

}  // namespace
}  // namespace lockstep::server
