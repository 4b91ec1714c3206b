// The pure parts of the trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "worker/trainer/environment.h"
#include "worker/trainer/faults.h"
#include "worker/trainer/flops.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/options.h"
#include "worker/trainer/schedule.h"

namespace lockstep::worker::trainer {
namespace {

using ::testing::HasSubstr;

StatusOr<std::optional<TrainerOptions>> Parse(
    std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "lockstep-train");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  return ParseFlags(static_cast<int>(argv.size()), argv.data());
}

TEST(OptionsTest, DefaultsDependOnTheOptimizer) {
  const auto sgd = Parse({"--train", "a"});
  ASSERT_TRUE(sgd.ok()) << sgd.status();
  EXPECT_EQ((*sgd)->rate.learning_rate, 0.05);
  const auto adam = Parse({"--train", "a", "b", "--optimizer", "adam"});
  ASSERT_TRUE(adam.ok()) << adam.status();
  EXPECT_EQ((*adam)->rate.learning_rate, 0.001);
  EXPECT_EQ((*adam)->data.train, (std::vector<std::string>{"a", "b"}));
}

TEST(OptionsTest, TheLastOneWinsAndPathsAddUp) {
  const auto parsed = Parse(
      {"--train", "a", "b", "--epochs", "2", "--train", "c", "--epochs", "3"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->epochs, 3);
  EXPECT_EQ((*parsed)->data.train, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(OptionsTest, RefusalsNameTheFlag) {
  const struct {
    std::vector<std::string> arguments;
    const char* text;
  } cases[] = {
      {{}, "--train"},
      {{"--train", "a", "--model", "vgg"}, "--model is 'vgg', but must be cnn"},
      {{"--train", "a", "--epochs", "0"}, "--epochs is 0"},
      {{"--train", "a", "--batch-size", "0"}, "--batch-size is 0"},
      {{"--train", "a", "--optimizer", "lamb"}, "--optimizer"},
      {{"--train", "a", "--backend", "mpi"},
       "--backend is 'mpi', but must be auto or shm or tcp or hierarchical or "
       "nccl"},
      {{"--train", "a", "--backend", "gloo"},
       "--backend: backend gloo is no longer available; use tcp, or auto"},
      {{"--train", "a", "--accumulate", "0"}, "--accumulate is 0"},
      {{"--train", "a", "--batch-size", "1048576", "--accumulate", "17"},
       "--accumulate is 17"},
      {{"--train", "a", "--clip-norm", "-1"}, "--clip-norm is -1"},
      {{"--train", "a", "--wire", "fp8"}, "--wire is 'fp8', but must be fp32"},
      {{"--train", "a", "--elastic", "--wire", "bf16"},
       "--elastic needs --wire fp32"},
      {{"--train", "a", "--scale-lr", "sqrt"}, "--scale-lr"},
      {{"--train", "a", "--learning-rate", "nan"}, "--learning-rate"},
      {{"--train", "a", "--momentum", "1.5"}, "--momentum"},
      {{"--train", "a", "--fail-at-step", "3"}, "--allow-faults"},
      {{"--train", "a", "--early-stopping-patience", "3"}, "--eval"},
      {{"--train", "a", "--epoch", "3"}, "--epoch"},
  };
  for (const auto& c : cases) {
    const auto parsed = Parse(c.arguments);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(Message(parsed.status()), HasSubstr(c.text));
  }
}

TEST(OptionsTest, ConfigHasWhatShapesTheNumbers) {
  TrainerOptions a;
  TrainerOptions b = a;
  b.run.log_every = 7;
  b.run.threads = 3;
  EXPECT_EQ(ConfigOf(a), ConfigOf(b));
  b.rate.learning_rate = 0.5;
  EXPECT_NE(ConfigOf(a), ConfigOf(b));
}

TEST(ScheduleTest, RisesThenFallsAlongACosine) {
  const Schedule s{.learning_rate = 2, .warmup_steps = 4, .cosine_steps = 12};
  EXPECT_DOUBLE_EQ(s.At(1), 0.5);
  EXPECT_DOUBLE_EQ(s.At(4), 2);
  EXPECT_DOUBLE_EQ(s.At(5), 2);
  EXPECT_DOUBLE_EQ(s.At(9), 1);
  EXPECT_GT(s.At(12), 0);
  EXPECT_NEAR(s.At(13), 0, 1e-12);
  EXPECT_NEAR(s.At(1000), 0, 1e-12);
}

TEST(ScheduleTest, ConstantAfterWarmUp) {
  const Schedule s{.learning_rate = 2, .warmup_steps = 2, .cosine_steps = 0};
  EXPECT_DOUBLE_EQ(s.At(1), 1);
  EXPECT_DOUBLE_EQ(s.At(2), 2);
  EXPECT_DOUBLE_EQ(s.At(1'000'000), 2);
}

class OptimizerTest : public ::testing::Test {
 protected:
  void Make(const OptimizerOptions& options) {
    auto made = MakeOptimizer(
        options, {{"w", std::span<float>(w_)}, {"b", std::span<float>(b_)}});
    ASSERT_TRUE(made.ok()) << made.status();
    optimizer_ = *std::move(made);
  }
  void Step(double rate) {
    const std::vector<std::span<const float>> gradients = {g_, h_};
    optimizer_->Step(rate, gradients);
  }

  std::vector<float> w_ = {1, -2, 3};
  std::vector<float> b_ = {0.5};
  std::vector<float> g_ = {0.5, 0.25, -1};
  std::vector<float> h_ = {2};
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(OptimizerTest, ScalesGradientsBeforeAllElse) {
  for (const char* kind : {"sgd", "adam"}) {
    OptimizerOptions options;
    options.kind = kind;
    options.momentum = 0.9;
    options.weight_decay = 0.1;
    const std::vector<float> start = w_;
    Make(options);
    const std::vector<std::span<const float>> gradients = {g_, h_};
    optimizer_->Step(0.1, gradients, 0.25);
    const std::vector<float> scaled = std::exchange(w_, start);
    for (float& g : g_) g *= 0.25f;
    Make(options);
    optimizer_->Step(0.1, gradients);
    EXPECT_EQ(w_, scaled) << kind;
    w_ = start;
    for (float& g : g_) g *= 4;
  }
}

TEST_F(OptimizerTest, PlainSgdHasNoState) {
  Make({.kind = "sgd"});
  Step(0.5);
  EXPECT_EQ(w_, (std::vector<float>{0.75, -2.125, 3.5}));
  EXPECT_EQ(b_, (std::vector<float>{-0.5}));
  EXPECT_TRUE(optimizer_->state().empty());
  EXPECT_EQ(optimizer_->steps(), 1);
}

TEST_F(OptimizerTest, SgdWithMomentumAndDecay) {
  Make({.kind = "sgd", .momentum = 0.5, .weight_decay = 0.25});
  // By hand, of w[0]: v = 0.5 + 0.25 = 0.75, w = 1 - 0.75 = 0.25;
  // v = 0.375 + 0.5 + 0.0625 = 0.9375, w = -0.6875.
  Step(1);
  EXPECT_EQ(w_[0], 0.25f);
  Step(1);
  EXPECT_EQ(w_[0], -0.6875f);
  ASSERT_EQ(optimizer_->state().size(), 2u);
  EXPECT_EQ(optimizer_->state()[1].name, "optimizer.momentum.b");
  EXPECT_EQ(optimizer_->state()[0].value[0], 0.9375f);
}

TEST_F(OptimizerTest, AdamFollowsItsFormula) {
  Make({.kind = "adam", .weight_decay = 0.1});
  double w = w_[0];
  double m = 0;
  double v = 0;
  for (int t = 1; t <= 20; ++t) {
    g_[0] = static_cast<float>(std::sin(t));
    Step(0.01);
    const double g = std::sin(t) + 0.1 * w;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    w -= 0.01 * (m / (1 - std::pow(0.9, t))) /
         (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    EXPECT_NEAR(w_[0], w, 2e-6) << t;
  }
  EXPECT_EQ(optimizer_->state().size(), 4u);
  EXPECT_EQ(optimizer_->steps(), 20);
}

TEST_F(OptimizerTest, GoesOnExactlyFromItsState) {
  for (const char* kind : {"sgd", "adam"}) {
    const OptimizerOptions options{.kind = kind, .momentum = 0.9};
    w_ = {1, -2, 3};
    Make(options);
    for (int t = 0; t < 5; ++t) Step(0.1);
    const std::vector<float> half = w_;
    std::vector<std::vector<float>> state;
    for (const OptimizerState& s : optimizer_->state()) {
      state.emplace_back(s.value.begin(), s.value.end());
    }
    for (int t = 0; t < 5; ++t) Step(0.1);
    const std::vector<float> whole = w_;

    w_ = half;
    Make(options);
    *optimizer_->mutable_steps() = 5;
    for (size_t i = 0; i < state.size(); ++i) {
      std::copy(state[i].begin(), state[i].end(),
                optimizer_->state()[i].value.begin());
    }
    for (int t = 0; t < 5; ++t) Step(0.1);
    EXPECT_EQ(w_, whole) << kind;
  }
}

TEST_F(OptimizerTest, UnknownKindIsRefused) {
  EXPECT_THAT(Message(MakeOptimizer({.kind = "lamb"}, {}).status()),
              HasSubstr("'lamb'"));
}

TEST(EnvironmentTest, ThreadsFollowWhatWasGiven) {
  EXPECT_EQ(ChooseThreads(3, "2", 8), 3);
  EXPECT_EQ(ChooseThreads(0, "2", 8), 2);
  EXPECT_EQ(ChooseThreads(0, "4,2", 8), 4);
  EXPECT_EQ(ChooseThreads(0, "many", 8), 8);
  EXPECT_EQ(ChooseThreads(0, nullptr, 2.9), 2);
  EXPECT_EQ(ChooseThreads(0, nullptr, 0.5), 1);
  EXPECT_EQ(ChooseThreads(0, nullptr, 0), 1);
}

TEST(EnvironmentTest, KnowsTheSlowBlasByItsFile) {
  EXPECT_TRUE(
      SlowBlasWarning("7f00-7f01 r-xp 0 08:01 1  "
                      "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0\n")
          .has_value());
  EXPECT_FALSE(SlowBlasWarning(
                   "7f00-7f01 r-xp 0 08:01 1  "
                   "/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3\n")
                   .has_value());
  EXPECT_FALSE(SlowBlasWarning("").has_value());
}

TEST(EnvironmentTest, OnlyNarrowKernelsOnAWideProcessorAreChanged) {
  EXPECT_EQ(WiderBlasCore("Zen", true), "SkylakeX");
  EXPECT_EQ(WiderBlasCore("Haswell", true), "SkylakeX");
  EXPECT_EQ(WiderBlasCore("Zen", false), std::nullopt);
  EXPECT_EQ(WiderBlasCore("Cooperlake", true), std::nullopt);
  EXPECT_EQ(WiderBlasCore("", true), std::nullopt);
}

TEST(EnvironmentTest, AStopSignalIsCaughtOnce) {
  {
    StopSignal signal;
    EXPECT_EQ(signal.caught(), 0);
    std::raise(SIGTERM);
    EXPECT_EQ(signal.caught(), SIGTERM);
    EXPECT_EXIT(std::raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
  }
  StopSignal again;
  EXPECT_EQ(again.caught(), 0);
}

// What torch.utils.flop_counter (PyTorch 2) counts of the same modules.
TEST(FlopsTest, AreThoseThatPyTorchCounts) {
  EXPECT_EQ(FlopsPerSample({"cnn", {28, 28, 1}, 10}), 24'995'328);
  EXPECT_EQ(FlopsPerSample({"cnn", {30, 37, 3}, 7}), 36'797'952);
  EXPECT_EQ(FlopsPerSample({"resnet", {32, 32, 3}, 10}), 381'041'664);
  EXPECT_EQ(FlopsPerSample({"resnet", {224, 200, 3}, 1000}), 1'283'002'368);
  EXPECT_EQ(FlopsPerSample({"other", {28, 28, 1}, 10}), 0);
}

TEST(FaultsTest, OnlyOnItsRankInItsAttempts) {
  FaultOptions options;
  options.allowed = true;
  options.fail_at_step = 5;
  options.nan_at_step = 6;
  options.on_rank = 1;
  options.attempts = 2;
  EXPECT_TRUE(Faults(options, 1, 1).BeforeStep(4).ok());
  EXPECT_FALSE(Faults(options, 1, 1).BeforeStep(5).ok());
  EXPECT_FALSE(Faults(options, 1, 2).BeforeStep(5).ok());
  EXPECT_TRUE(Faults(options, 1, 3).BeforeStep(5).ok());
  EXPECT_TRUE(Faults(options, 0, 1).BeforeStep(5).ok());
  EXPECT_TRUE(Faults(options, 1, 1).SpoilsGradient(6));
  EXPECT_FALSE(Faults(options, 0, 1).SpoilsGradient(6));
}

}  // namespace
}  // namespace lockstep::worker::trainer
