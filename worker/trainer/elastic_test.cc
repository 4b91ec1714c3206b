// Elastic jobs of lockstep-train processes: they train on while ranks are away,
// to the same bits.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "worker/checkpoint/reader.h"
#include "worker/trainer/testing.h"

namespace lockstep::worker::trainer {
namespace {

using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class ElasticTest : public DisturbedJobTest {
 protected:
  // 3 epochs of 17 steps.
  static JobOptions Job(std::string output, bool elastic = true) {
    JobOptions job = JobOf(3, 20, std::move(output));
    if (elastic) Add(&job, {"--elastic"});
    return job;
  }
  // Slow enough that something can happen between two steps.
  static void Slow(JobOptions* job) {
    Add(job, {"--allow-faults", "--step-delay-ms", "50"});
  }
  static bool WaitForStep(TestJob* job, int rank, int64_t step) {
    return job->daemon().WaitFor([&] { return job->committed(rank) >= step; });
  }
  // Kills `lost`, and has it replaced once the others have gone on for a while.
  static void LoseAndReturn(TestJob* job, const std::vector<int>& lost,
                            int survivor) {
    ASSERT_TRUE(WaitForStep(job, survivor, 12));
    int hellos = 0;
    job->daemon().With(
        [&](rank_link::RankLinkServer*) { hellos = job->daemon().hellos; });
    for (const int rank : lost) {
      ::kill(job->pid(rank), SIGKILL);
      EXPECT_EQ(job->WaitFor(rank), 128 + SIGKILL);
    }
    job->Recover(lost);
    for (const int rank : lost) job->Replace(rank);
    ASSERT_TRUE(WaitForStep(job, survivor, 25));
    ASSERT_TRUE(job->daemon().WaitFor([&] {
      return job->daemon().hellos >= hellos + static_cast<int>(lost.size());
    }));
    job->Recover();
  }
  // The steps of the checkpoints that `rank` told of: of one rank's parts each.
  static std::vector<int64_t> Checkpoints(TestJob* job, int rank) {
    for (const v1::RankReport& report : job->reports(rank)) {
      if (report.checkpoint_path().empty()) continue;
      const auto saved = checkpoint::Checkpoint::Open(RealFileSystem(),
                                                      report.checkpoint_path());
      // An older one may be deleted already.
      EXPECT_EQ(saved.ok() ? saved->manifest().world_size : 1, 1u);
    }
    return job->checkpoints(rank);
  }
  // What the last evaluation found.
  static std::string Evaluated(const RankResult& result) {
    const size_t at = result.output.rfind("accuracy ");
    if (at == std::string::npos) return "none in: " + result.output;
    return result.output.substr(at, result.output.find('\n', at) - at);
  }
};

TEST_F(ElasticTest, TheOthersTrainOnToTheSameBits) {
  const auto expected = RunJob(Job(Output("undisturbed")));
  ASSERT_EQ(expected[0].code, 0) << expected[0].output;
  JobOptions slow = Job(Output("o"));
  Slow(&slow);
  TestJob job(slow);
  LoseAndReturn(&job, {1}, 0);
  const auto results = job.Wait();
  for (const RankResult& result : results) {
    ASSERT_EQ(result.code, 0) << result.output;
    EXPECT_EQ(ParamHash(result), ParamHash(expected[0]));
  }
  EXPECT_THAT(results[0].output, HasSubstr("; 2 of 3 ranks train"));
  EXPECT_THAT(results[0].output, HasSubstr("recovery 2: "));
  EXPECT_EQ(Evaluated(results[0]), Evaluated(expected[0]));
  EXPECT_THAT(Checkpoints(&job, 0), IsSupersetOf({10, 20, 51}));
  EXPECT_THAT(Checkpoints(&job, 1), IsEmpty());
}

TEST_F(ElasticTest, AnotherRankSavesAndSpeaksWhileTheChiefIsAway) {
  const auto expected = RunJob(Job(Output("undisturbed")));
  ASSERT_EQ(expected[0].code, 0) << expected[0].output;
  JobOptions slow = Job(Output("o"));
  Slow(&slow);
  // So one is in flight when the chief changes.
  slow.checkpoint_interval = 1;
  TestJob job(slow);
  // One rank computes all shards.
  LoseAndReturn(&job, {0, 1}, 2);
  const auto results = job.Wait();
  for (const RankResult& result : results) {
    ASSERT_EQ(result.code, 0) << result.output;
    EXPECT_EQ(ParamHash(result), ParamHash(expected[0]));
  }
  EXPECT_THAT(results[2].output, HasSubstr("; 1 of 3 ranks train"));
  EXPECT_EQ(Evaluated(results[0]), Evaluated(expected[0]));
  // At least the first one of the new chief, and after its return the last one
  // of the old chief.
  EXPECT_THAT(Checkpoints(&job, 2), Contains(Ge(20)));
  EXPECT_THAT(Checkpoints(&job, 0), Contains(51));
  EXPECT_THAT(Checkpoints(&job, 1), IsEmpty());
  for (int rank = 0; rank < 3; ++rank) {
    for (const v1::RankReport& report : job.reports(rank)) {
      EXPECT_THAT(report.event(), Not(HasSubstr("is lost")));
    }
  }
  EXPECT_TRUE(RealFileSystem()->Exists(Output("o") + "/model.safetensors"));
}

TEST_F(ElasticTest, AJobGoesOnFromACheckpointOfEitherKind) {
  for (const bool first : {true, false}) {
    for (const bool second : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", first, second));
      const std::string output =
          Output(fmt::format("o{}{}", int{first}, int{second}));
      JobOptions part = Job(output, first);
      Add(&part,
          {"--allow-faults", "--fail-at-step", "38", "--step-delay-ms", "50"});
      int64_t start = 0;
      {
        TestJob job(part);
        // The others may wait for a recovery.
        EXPECT_EQ(job.WaitFor(0), 1);
        const std::vector<int64_t> steps = job.checkpoints(0);
        if (!steps.empty()) start = steps.back();
      }
      ASSERT_GE(start, 20);
      const auto results = RunJob(Next(Job(output, second), start));
      ASSERT_EQ(results[0].code, 0) << results[0].output;
      EXPECT_THAT(results[0].output,
                  HasSubstr(fmt::format("resuming after step {} ", start)));
      EXPECT_EQ(ParamHash(results[1]), ParamHash(results[0]));
      if (first != second) continue;
      const auto whole = RunJob(Job(output + "-whole", first));
      EXPECT_EQ(ParamHash(results[0]), ParamHash(whole[0]));
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::trainer
