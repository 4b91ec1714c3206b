// Jobs of lockstep-train processes that lose a rank at a moment that matters to
// a checkpoint, and go on in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/fault_point.h"
#include "worker/trainer/testing.h"

namespace lockstep::worker::trainer {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LostRankTest : public DisturbedJobTest {
 protected:
  // `rank` ends at the fault point `point`.
  static void Crash(JobOptions* job, int rank, const std::string& point) {
    Add(job, {"--allow-faults"});
    job->only_rank = rank;
    job->only = {"--faults", point + "=crash@1"};
  }
  static void ExpectGood(const std::vector<RankResult>& results,
                         const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      const RankResult& result = results[static_cast<size_t>(rank)];
      EXPECT_EQ(result.code, 0) << result.output;
      EXPECT_EQ(ParamHash(result),
                ParamHash(results[static_cast<size_t>(ranks[0])]));
    }
  }
};

// All ranks know that the last checkpoint is complete; the chief is lost before
// it has published that.
TEST_F(LostRankTest, AChiefThatIsNewSavesTheLastCheckpointAgain) {
  JobOptions options = JobOf(2, 32, Output("o"));
  options.checkpoint_interval = 0;
  Add(&options, {"--recover"});
  Crash(&options, 0, "checkpoint.publish.begin");
  TestJob job(options);
  ASSERT_EQ(job.WaitFor(0), kFaultExitCode);
  EXPECT_THAT(job.checkpoints(0), IsEmpty());
  job.Recover();
  job.Replace(0);
  ExpectGood(job.Wait(), {0, 1});
  EXPECT_THAT(job.checkpoints(0), ElementsAre(48));
}

// The next rank is the chief, and has a state.
TEST_F(LostRankTest, TheNextChiefSavesTheLastCheckpointAgain) {
  JobOptions options = JobOf(3, 20, Output("o"));
  options.checkpoint_interval = 0;
  Add(&options, {"--elastic"});
  Crash(&options, 0, "checkpoint.publish.begin");
  TestJob job(options);
  ASSERT_EQ(job.WaitFor(0), kFaultExitCode);
  job.Recover({0});
  ExpectGood(job.Wait(), {1, 2});
  EXPECT_THAT(job.checkpoints(0), IsEmpty());
  EXPECT_THAT(job.checkpoints(1), ElementsAre(51));
}

// The last step of the epoch, the fifth, settles the checkpoint of step 3,
// which is written while step 4 computes.
TEST_F(LostRankTest, TheCheckpointOfBeforeAnEvaluationIsPublished) {
  JobOptions options = JobOf(2, 120, Output("o"));
  options.checkpoint_interval = 3;
  Add(&options, {"--recover", "--epochs", "2", "--step-delay-ms", "800"});
  Crash(&options, 1, "evaluation.sum.before");
  TestJob job(options);
  ASSERT_EQ(job.WaitFor(1), kFaultExitCode);
  job.Recover();
  job.Replace(1);
  ExpectGood(job.Wait(), {0, 1});
  EXPECT_THAT(job.checkpoints(0), Contains(3));
}

}  // namespace
}  // namespace lockstep::worker::trainer
