#include "worker/runtime/stepped_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "worker/runtime/peer_lost.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(SteppedReducerTest, GradientsAreTheSumOfAllRanks) {
  FakeGroup group(3);
  RunRanks(3, [&](int r) {
    ReducingRank rank(&group, r);
    for (int step = 1; step <= 5; ++step) {
      for (size_t i = 0; i < 3; ++i) {
        for (float& g : rank.reducer->gradient(i)) {
          g = static_cast<float>((r + 1) * (i + 1) * step);
        }
      }
      // Each rank in another order.
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(rank.reducer->Ready((i + r) % 3).ok());
      }
      StatusOr<StepResult> result = rank.reducer->Finish({});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_TRUE(result->apply);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_THAT(rank.reducer->gradient(i),
                    Each(static_cast<float>(6 * (i + 1) * step)));
      }
      EXPECT_TRUE(rank.reducer->Commit().ok());
      EXPECT_EQ(rank.reducer->committed(), step);
    }
  });
}

TEST(SteppedReducerTest, GradientsKeepTheirPlaceAndDoNotOverlap) {
  FakeGroup group(1);
  ReducingRank rank(&group, 0);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(rank.reducer->gradient(i).size(), kParameters[i].elements);
    for (float& g : rank.reducer->gradient(i)) g = static_cast<float>(i + 1);
  }
  const float* before = rank.reducer->gradient(0).data();
  ASSERT_TRUE(rank.reducer->Finish({}).ok());
  ASSERT_TRUE(rank.reducer->Commit().ok());
  EXPECT_EQ(rank.reducer->gradient(0).data(), before);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(rank.reducer->gradient(i), Each(static_cast<float>(i + 1)));
  }
  rank.reducer->ZeroGradients();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(rank.reducer->gradient(i), Each(0.0f));
  }
}

TEST(SteppedReducerTest, FullBucketsStartBeforeTheStepEnds) {
  FakeGroup group(1);
  ReducingRank rank(&group, 0);
  EXPECT_TRUE(rank.reducer->Ready(0).ok());
  EXPECT_EQ(rank.progress->counters().collectives, 0u);  // Not the first.
  EXPECT_TRUE(rank.reducer->Ready(2).ok());
  EXPECT_EQ(rank.progress->counters().collectives, 1u);
  EXPECT_FALSE(rank.reducer->Ready(2).ok());
  EXPECT_FALSE(rank.reducer->Ready(3).ok());
}

TEST(SteppedReducerTest, LossAndSamplesAreOfAllRanks) {
  FakeGroup group(3);
  RunRanks(3, [&](int r) {
    ReducingRank rank(&group, r);
    // Rank 2 has none in the short last step.
    StepInputs inputs;
    inputs.samples = r == 2 ? 0 : 5000 + r;
    inputs.loss_sum = r == 2 ? 0 : 1e5;
    StatusOr<StepResult> result = rank.reducer->Finish(inputs);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->samples, 10001);
    EXPECT_NEAR(result->loss, 2e5 / 10001, 1e-5);
    EXPECT_TRUE(rank.reducer->Commit().ok());
    EXPECT_EQ(rank.progress->counters().samples,
              static_cast<uint64_t>(inputs.samples));
  });
}

TEST(SteppedReducerTest, OneNanAnywhereMakesAllSkip) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    ReducingRank rank(&group, r);
    for (size_t i = 0; i <= 3; ++i) {
      rank.Fill(1);
      StepInputs inputs;
      if (r == 1 && i < 3) {
        rank.reducer->gradient(i).back() =
            std::numeric_limits<float>::infinity();
      }
      if (r == 1 && i == 3) inputs.loss_sum = std::nan("");
      StatusOr<StepResult> result = rank.reducer->Finish(inputs);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_FALSE(result->apply);
      EXPECT_TRUE(result->skipped);
      EXPECT_TRUE(rank.reducer->Commit().ok());
    }
    EXPECT_EQ(rank.progress->counters().steps_skipped, 4u);
    EXPECT_EQ(rank.reducer->committed(), 4);
    rank.Fill(1);
    EXPECT_TRUE(rank.reducer->Finish({})->apply);
  });
}

TEST(SteppedReducerTest, ADirectiveReachesAllWithoutARoundTrip) {
  FakeGroup group(3);
  RunRanks(3, [&](int r) {
    SteppedReducerOptions options;
    options.before_step = [r](StepController* controller) {
      if (r == 0 && controller->step() == 3) {
        controller->Offer(DirectiveOp::kStop, 8);
      }
    };
    ReducingRank rank(&group, r, options);
    int64_t stopped = 0;
    for (int i = 0; i < 10 && stopped == 0; ++i) {
      ASSERT_TRUE(rank.reducer->Finish({}).ok());
      StatusOr<StepOrders> orders = rank.reducer->Commit();
      ASSERT_TRUE(orders.ok());
      if (orders->stop) stopped = rank.reducer->committed();
    }
    EXPECT_EQ(stopped, 4);
  });
}

TEST(SteppedReducerTest, ACheckpointIsSettledByRoundsWhenNoStepsCome) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    SteppedReducerOptions options;
    options.checkpoint_interval = 2;
    ReducingRank rank(&group, r, options);
    ASSERT_TRUE(rank.reducer->Finish({}).ok());
    EXPECT_FALSE(rank.reducer->Commit()->checkpoint);
    ASSERT_TRUE(rank.reducer->Finish({}).ok());
    const StepOrders orders = *rank.reducer->Commit();
    ASSERT_TRUE(orders.checkpoint.has_value());
    EXPECT_TRUE(rank.reducer->Vote(orders.checkpoint->id, true).ok());
    StatusOr<StepOrders> settled = rank.reducer->Settle();
    ASSERT_TRUE(settled.ok()) << settled.status();
    EXPECT_TRUE(settled->settled->complete);
    EXPECT_FALSE(rank.reducer->in_flight());
    // Gradients are untouched by a round.
    EXPECT_EQ(rank.reducer->committed(), 2);
  });
}

TEST(SteppedReducerTest, WhoDiffersStopsAllByTheNextStep) {
  FakeGroup group(3);
  std::atomic<int> own = 0;
  std::atomic<int> victims = 0;
  RunRanks(3, [&](int r) {
    ReducingRank rank(&group, r);
    StepInputs inputs;
    inputs.position = r == 1 ? 64 : 128;
    StatusOr<StepResult> result = rank.reducer->Finish(inputs);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(r != 1 || !result->apply);
    ASSERT_TRUE(rank.reducer->Commit().ok());
    result = rank.reducer->Finish({});
    ASSERT_FALSE(result.ok());
    (ReasonOf(result.status()) == kReasonPeerLost ? victims : own)++;
    EXPECT_TRUE(r != 1 || ReasonOf(result.status()) == "CONFIG_MISMATCH");
  });
  EXPECT_EQ(own + victims, 3);
  EXPECT_GE(own, 1);
}

TEST(SteppedReducerTest, ADeadPeerIsAnErrorThatIsNotOnesOwn) {
  FakeGroup group(2);
  ReducingRank rank(&group, 0);
  std::thread killer([&] { group.Kill(1); });
  StatusOr<StepResult> result = rank.reducer->Finish({});
  killer.join();
  EXPECT_EQ(result.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(result.status()), kReasonPeerLost);
  EXPECT_THAT(Message(result.status()), HasSubstr("step 1"));
}

TEST(SteppedReducerTest, AnAbortEndsTheWaitAndAllThatFollows) {
  FakeGroup group(2);
  ReducingRank rank(&group, 0);
  std::thread aborter([&] { rank.communicator->Abort("rank 1 was killed"); });
  StatusOr<StepResult> result = rank.reducer->Finish({});
  aborter.join();
  EXPECT_EQ(result.status().code(), StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(result.status()), kReasonPeerLost);
  EXPECT_FALSE(rank.reducer->Commit().ok());
  EXPECT_FALSE(rank.reducer->Settle().ok());
}

TEST(SteppedReducerTest, TooManySamplesAreRefused) {
  FakeGroup group(1);
  ReducingRank rank(&group, 0);
  StepInputs inputs;
  inputs.samples = -1;
  EXPECT_FALSE(rank.reducer->Finish(inputs).ok());
}

}  // namespace
}  // namespace lockstep::worker::runtime
