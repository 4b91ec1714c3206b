#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/reducer_test_util.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(ReducerGradientsTest, TheOrderOfRankZeroIsLearnedByAll) {
  for (const bool bf16 : {false, true}) {
    FakeGroup group(2);
    RunRanks(2, [&](int r) {
      SteppedReducerOptions options;
      options.reducer.learn_order = true;
      options.reducer.bf16_wire = bf16;
      ReducingRank rank(&group, r, options);
      const auto gradients = RandomGradients(1);
      const std::vector<size_t> order =
          r == 0 ? std::vector<size_t>{1, 2, 0} : std::vector<size_t>{2, 1, 0};
      for (int step = 1; step <= 4; ++step) {
        EXPECT_TRUE(rank.Step(gradients, order).apply);
        ASSERT_TRUE(rank.reducer->Commit().ok());
        EXPECT_EQ(rank.reducer->order().empty(), step < 2);
      }
      EXPECT_THAT(rank.reducer->order(), ElementsAre(1, 2, 0));
      // Nothing overlaps, and the sums are right.
      EXPECT_TRUE(rank.Step(gradients, order).apply);
      for (size_t i = 0; i < 3; ++i) {
        ASSERT_EQ(rank.reducer->gradient(i).size(), gradients[i].size());
        for (size_t k = 0; k < gradients[i].size(); ++k) {
          const float sum = 2 * gradients[i][k];
          ASSERT_NEAR(rank.reducer->gradient(i)[k], sum,
                      bf16 ? std::abs(sum) / 256 : 0);
        }
      }
      // Buckets start as rank 0's gradients come.
      ASSERT_TRUE(rank.reducer->Commit().ok());
      const uint64_t before = rank.progress->counters().collectives;
      EXPECT_TRUE(rank.reducer->Put(1, gradients[1]).ok());
      EXPECT_TRUE(rank.reducer->Put(2, gradients[2]).ok());
      EXPECT_GT(rank.progress->counters().collectives, before);
      EXPECT_TRUE(rank.reducer->Finish({}).ok());
    });
  }
}

TEST(ReducerGradientsTest, AnOrderThatIsGivenHoldsFromTheFirstStep) {
  FakeGroup group(1);
  SteppedReducerOptions options;
  options.reducer.learn_order = true;
  options.reducer.order = {2, 0, 1};
  ReducingRank rank(&group, 0, options);
  const float* before = rank.reducer->gradient(1).data();
  for (int step = 0; step < 4; ++step) {
    rank.Step(RandomGradients(1), {0, 1, 2});
    ASSERT_TRUE(rank.reducer->Commit().ok());
  }
  EXPECT_THAT(rank.reducer->order(), ElementsAre(2, 0, 1));
  EXPECT_EQ(rank.reducer->gradient(1).data(), before);
}

TEST(ReducerGradientsTest, AWrongOrderIsRefused) {
  FakeGroup group(1);
  const auto communicator = group.Make(0);
  const auto progress = *Progress::Create("", 0, 1);
  for (const std::vector<uint32_t>& order : std::vector<std::vector<uint32_t>>{
           {0, 1}, {0, 1, 1}, {0, 1, 3}, {0, 1, 2, 2}}) {
    SteppedReducerOptions options;
    options.communicator = communicator.get();
    options.progress = progress.get();
    options.reducer.order = order;
    EXPECT_EQ(MakeSteppedReducer(kParameters, options).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST(ReducerGradientsTest, MicroBatchesAddUpBeforeTheyAreReduced) {
  for (const bool bf16 : {false, true}) {
    FakeGroup group(2);
    RunRanks(2, [&](int r) {
      SteppedReducerOptions options;
      options.reducer.bf16_wire = bf16;
      ReducingRank rank(&group, r, options);
      for (int step = 0; step < 3; ++step) {
        const auto first = RandomGradients(1);
        const auto second = RandomGradients(2);
        const uint64_t before = rank.progress->counters().collectives;
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(rank.reducer->Add(i, first[i]).ok());
        }
        EXPECT_EQ(rank.progress->counters().collectives, before);
        EXPECT_TRUE(rank.Step(second, {2, 1, 0}).apply);
        for (size_t i = 0; i < 3; ++i) {
          for (size_t k = 0; k < first[i].size(); ++k) {
            const float one = first[i][k] + second[i][k];
            ASSERT_NEAR(rank.reducer->gradient(i)[k], 2 * one,
                        bf16 ? std::abs(2 * one) / 128 : 0);
          }
        }
        ASSERT_TRUE(rank.reducer->Commit().ok());
      }
    });
  }
}

// Of four ranks; "fake" is a group of this test's.
class Bfloat16Test : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int kRanks = 4;

  // Puts `all` of all ranks, and on each runs fn(rank, off), where off(i, k) is
  // by how much element k of gradient i is off, of the sum of the ranks'
  // absolute values.
  template <typename Fn>
  void Reduce(const std::vector<std::vector<std::vector<float>>>& all, Fn fn) {
    const std::string backend = GetParam();
    FakeGroup group(kRanks);
    collective::MapRendezvousStore store;
    ::signal(SIGPIPE, SIG_IGN);
    RunRanks(kRanks, [&](int r) {
      std::unique_ptr<collective::Communicator> communicator;
      if (backend == "fake") {
        communicator = group.Make(r);
      } else {
        auto formed =
            FormCommunicator(TestOptionsOf(backend, r, kRanks, &store));
        ASSERT_TRUE(formed.ok()) << formed.status();
        communicator = *std::move(formed);
      }
      SteppedReducerOptions options;
      options.reducer.bf16_wire = true;
      ReducingRank rank(std::move(communicator), options);
      for (size_t i = 3; i-- > 0;) {
        EXPECT_TRUE(rank.reducer->Put(i, all[static_cast<size_t>(r)][i]).ok());
      }
      fn(&rank, [&](size_t i, size_t k) {
        double sum = 0;
        double size = 0;
        for (const auto& gradients : all) {
          sum += gradients[i][k];
          size += std::abs(gradients[i][k]);
        }
        return std::abs(rank.reducer->gradient(i)[k] - sum) / size;
      });
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Bfloat16Test,
                         ::testing::Values("fake", "shm", "tcp",
                                           "hierarchical"),
                         [](const auto& info) { return info.param; });

TEST_P(Bfloat16Test, OnTheWireIsOffByWhatIsStated) {
  std::vector<std::vector<std::vector<float>>> all;
  for (uint32_t r = 0; r < kRanks; ++r) all.push_back(RandomGradients(r));
  Reduce(all, [](ReducingRank* rank, const auto& off) {
    StepInputs inputs;
    inputs.samples = 1001;
    inputs.loss_sum = 0.1;
    const StatusOr<StepResult> result = rank->reducer->Finish(inputs);
    ASSERT_TRUE(result.ok()) << result.status();
    // The tail is not rounded.
    EXPECT_EQ(result->samples, kRanks * 1001);
    EXPECT_FLOAT_EQ(static_cast<float>(result->loss), 0.1f / 1001);
    double largest = 0;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t k = 0; k < kParameters[i].elements; ++k) {
        largest = std::max(largest, off(i, k));
      }
    }
    EXPECT_GT(largest, 1.0 / 512);  // It was rounded.
    EXPECT_LE(largest, Bfloat16WireError(GetParam()));
    // Half the bytes, but for tail and gaps.
    EXPECT_LT(rank->progress->counters().allreduce_bytes, 2u * 4010 + 400);
    ASSERT_TRUE(rank->reducer->Commit().ok());
  });
}

// Every rounding is down, and of half a unit or nearly: of the values, of the
// sums of the two hosts where those travel on, and of the whole.
TEST_P(Bfloat16Test, ThreeRoundingsOfAHierarchyAreMoreThanTwo) {
  const auto u = [](double units) { return units / 256; };
  const double values[] = {1 + u(1), 1 + u(3 - 1e-3), 1 + u(7 - 1e-3),
                           1 - u(0.5 + 1e-3)};
  std::vector<std::vector<std::vector<float>>> all;
  for (const double value : values) {
    all.emplace_back();
    for (const Parameter& parameter : kParameters) {
      all.back().emplace_back(parameter.elements, static_cast<float>(value));
    }
  }
  Reduce(all, [](ReducingRank* rank, const auto& off) {
    ASSERT_TRUE(rank->reducer->Finish({}).ok());
    for (size_t i = 0; i < 3; ++i) {
      for (size_t k = 0; k < kParameters[i].elements; ++k) {
        ASSERT_LE(off(i, k), Bfloat16WireError(GetParam()));
        if (GetParam() == std::string("hierarchical")) {
          ASSERT_GT(off(i, k), Bfloat16WireError("shm"));
        }
      }
    }
    ASSERT_TRUE(rank->reducer->Commit().ok());
  });
}

TEST(ReducerGradientsTest, ANumberThatBfloat16CannotHoldMakesAllSkip) {
  FakeGroup group(2);
  RunRanks(2, [&](int r) {
    SteppedReducerOptions options;
    options.reducer.bf16_wire = true;
    ReducingRank rank(&group, r, options);
    auto gradients = RandomGradients(1);
    if (r == 1) gradients[0][3] = std::numeric_limits<float>::max();
    EXPECT_TRUE(rank.Step(gradients, {2, 1, 0}).skipped);
    ASSERT_TRUE(rank.reducer->Commit().ok());
  });
}

TEST(ReducerGradientsTest, ClippingIsByTheNormOfTheWhole) {
  FakeGroup group(3);
  std::vector<double> scales(3);
  RunRanks(3, [&](int r) {
    SteppedReducerOptions options;
    options.reducer.clip_norm = 5;
    ReducingRank rank(&group, r, options);
    const StepResult result =
        rank.Step(RandomGradients(static_cast<uint32_t>(r)), {2, 1, 0});
    double squares = 0;
    for (size_t i = 0; i < 3; ++i) {
      for (const float g : rank.reducer->gradient(i)) {
        squares += double{g} * double{g};
      }
    }
    EXPECT_NEAR(result.gradient_norm, std::sqrt(squares), 1e-9 * squares);
    EXPECT_EQ(result.gradient_scale, 5 / result.gradient_norm);
    scales[static_cast<size_t>(r)] = result.gradient_scale;
    ASSERT_TRUE(rank.reducer->Commit().ok());
    // Small ones are left alone.
    const std::vector<std::vector<float>> small = {
        std::vector<float>(1000, 1e-3f), std::vector<float>(10),
        std::vector<float>(3000)};
    EXPECT_EQ(rank.Step(small, {2, 1, 0}).gradient_scale, 1);
    ASSERT_TRUE(rank.reducer->Commit().ok());
  });
  // The same bits everywhere.
  EXPECT_THAT(scales, Each(scales[0]));
}

TEST(ReducerGradientsTest, AGradientOfAnotherSizeIsRefused) {
  FakeGroup group(1);
  ReducingRank rank(&group, 0);
  const std::vector<float> wrong(7);
  EXPECT_FALSE(rank.reducer->Add(0, wrong).ok());
  EXPECT_FALSE(rank.reducer->Put(0, wrong).ok());
  EXPECT_FALSE(rank.reducer->Put(9, wrong).ok());
}

// What an earlier generation learned comes back after the same step.
TEST(ReducerGradientsTest, AnOrderThatWasLearnedBeforeHoldsFromItsStepOn) {
  const std::vector<uint32_t> learned = {1, 0, 2};
  for (const int64_t start : {0, 1, 2, 5}) {
    FakeGroup group(2);
    RunRanks(2, [&](int r) {
      SteppedReducerOptions options;
      options.learned = {learned, 2};
      options.reducer.start_step = start;
      options.reducer.learn_order = true;
      std::vector<int64_t> told;
      options.on_order = [&](const std::vector<uint32_t>& order, int64_t at,
                             const std::string& layout) {
        EXPECT_EQ(order, learned);
        EXPECT_EQ(layout.size(), 16u);
        told.push_back(at);
      };
      ReducingRank rank(&group, r, options);
      const auto gradients = RandomGradients(1);
      for (int64_t step = start + 1; step <= start + 4; ++step) {
        EXPECT_EQ(rank.reducer->order().empty(), step <= 2) << step;
        // In another order: nothing is learned.
        rank.Step(gradients, {2, 0, 1});
        ASSERT_TRUE(rank.reducer->Commit().ok());
      }
      EXPECT_EQ(rank.reducer->order(), learned);
      EXPECT_EQ(told,
                start < 2 ? std::vector<int64_t>{2} : std::vector<int64_t>{});
    });
  }
}

}  // namespace
}  // namespace lockstep::worker::runtime
