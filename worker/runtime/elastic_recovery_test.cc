// An elastic job of whole sessions: the others go on while a rank is away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/runtime/recovery_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ElasticRecoveryTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, ElasticRecoveryTest,
                         ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(ElasticRecoveryTest, TheOthersGoOnAndTheRankReturns) {
  Job job(GetParam(), 3, 20);
  job.SetElastic();
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 5, .point = Point::kHalfReduced}});
  ExpectUndisturbed(job, ranks, 20);
  EXPECT_EQ(ranks[0].most_shards, 2u) << "its own, and that of rank 1";
  EXPECT_EQ(ranks[2].most_shards, 1u);
  EXPECT_EQ(ranks[0].recoveries, 2);
  EXPECT_FALSE(ranks[0].last.received);
  EXPECT_TRUE(ranks[1].last.received);
  EXPECT_GE(ranks[1].last.step, 6);
  const std::vector<std::string> events = job.Events();
  EXPECT_THAT(events,
              Contains(HasSubstr("recovery 1: 2 ranks went on with step 5")));
  EXPECT_THAT(events, Contains(AllOf(HasSubstr("recovery 2: "),
                                     HasSubstr("rank 1 received"))));
}

TEST_P(ElasticRecoveryTest, TheChiefMayBeAway) {
  Job job(GetParam(), 3, 20);
  job.SetElastic();
  ExpectUndisturbed(
      job, job.Run({{.rank = 0, .step = 6, .point = Point::kAfterCommit}}), 20);
}

TEST_P(ElasticRecoveryTest, OneRankAloneGoesOn) {
  Job job(GetParam(), 2, 16);
  job.SetElastic();
  const std::vector<Rank> ranks =
      job.Run({{.rank = 0, .step = 4, .point = Point::kAfterFinish}});
  ExpectUndisturbed(job, ranks, 16);
  EXPECT_EQ(ranks[1].most_shards, 2u);
}

TEST_P(ElasticRecoveryTest, RanksAreLostOneAfterTheOther) {
  Job job(GetParam(), 4, 30);
  job.SetElastic();
  ExpectUndisturbed(
      job,
      job.Run({{.rank = 3, .step = 4, .point = Point::kHalfReduced},
               {.rank = 1, .step = 5, .point = Point::kHalfReduced},
               {.rank = 0, .step = 12, .point = Point::kAfterCommit}}),
      30);
}

TEST_P(ElasticRecoveryTest, ARankThatHasReturnedMakesAnotherReducer) {
  Job job(GetParam(), 2, 14);
  job.SetElastic();
  job.at_end = [](Rank* rank) { return StepWithAnotherReducer(rank); };
  ExpectUndisturbed(
      job, job.Run({{.rank = 1, .step = 4, .point = Point::kAfterCommit}}), 14);
}

TEST_P(ElasticRecoveryTest, WithoutADeathNothingIsDifferent) {
  Job job(GetParam(), 3, 6);
  job.SetElastic();
  const std::vector<Rank> ranks = job.Run();
  ExpectUndisturbed(job, ranks, 6);
  EXPECT_EQ(ranks[1].most_shards, 1u);
}

}  // namespace
}  // namespace lockstep::worker::runtime
