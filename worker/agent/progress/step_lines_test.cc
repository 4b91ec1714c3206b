#include "worker/agent/progress/step_lines.h"

#include <gtest/gtest.h>

#include "common/model/progress_pattern.h"

namespace lockstep::worker::agent {
namespace {

struct Example {
  const char* line;
  std::optional<int64_t> step;
  std::optional<int64_t> total;
};

TEST(StepLinesTest, LinesOfCommonFrameworksNameSteps) {
  const Example examples[] = {
      {" 45%|####5     | 450/1000 [00:10<00:12, 43.20it/s, loss=0.3]", 450,
       1000},
      {"Epoch 2:  12%|##| 15/125 [01:00:10<00:12,  4.2it/s, v_num=0]", 15, 125},
      {"1234it [00:10, 43.2it/s]", 1234, std::nullopt},
      {"Epoch 0/4  \xe2\x94\x81\xe2\x94\x81 120/938 0:00:02 \xe2\x80\xa2 "
       "0:00:16 49.3it/s",
       120, 938},
      {"\x1b[1m120/938\x1b[0m \x1b[32m\xe2\x94\x81\xe2\x94\x81\x1b[0m\x1b[37m"
       "\xe2\x94\x81\x1b[0m \x1b[1m2:35\x1b[0m 166ms/step - loss: 2.3",
       120, 938},
      {" 120/1875 [>.............................] - ETA: 3s - loss: 0.4", 120,
       1875},
      {"938/938 - 4s - 4ms/step - accuracy: 0.9 - loss: 0.4", 938, 938},
      {"938/938 - 4s - loss: 0.4 - 4s/epoch - 4ms/step", 938, 938},
      {"step 120/1000 loss 0.31", 120, 1000},
      {"Step: 7, loss = 1.5", 7, std::nullopt},
      {"iter 1500: loss 2.9, time 130ms", 1500, std::nullopt},
      {"[rank0] global_step=12,000 lr=1e-4", 12000, std::nullopt},
      {"completed step: 12, seconds: 1.2, TFLOP/s/device: 100", 12,
       std::nullopt},
      {"Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3", 640, 60000},
      {"Epoch: [0][ 10/5005]\tTime  0.2", 10, 5005},
      {"Epoch 3/10", 3, 10},
      {"Epoch 5, loss 0.2", 5, std::nullopt},
      {"{'loss': 0.51, 'learning_rate': 5e-05, 'epoch': 3.0}", std::nullopt,
       std::nullopt},
      {"[1200] loss=0.3", 1200, std::nullopt},
      {"I1126 05:10:11.123 140 logging_writer.py:48] [1200] loss=0.3", 1200,
       std::nullopt},
  };
  for (const Example& example : examples) {
    const auto found = FindStep(example.line);
    ASSERT_TRUE(found) << example.line;
    EXPECT_EQ(found->step, example.step) << example.line;
    EXPECT_EQ(found->total, example.total) << example.line;
  }
}

TEST(StepLinesTest, OtherLinesDoNot) {
  for (const char* line :
       {"", "loading data", "batch size 32", "lr 0.001", "retry in 5 s",
        "2026-11-26 05:10:11,123 INFO starting", "stepping stone", "GPU 0 used",
        "waiting for 3 peers", "http://host:8080/steps"}) {
    EXPECT_FALSE(FindStep(line)) << line;
  }
}

TEST(StepLinesTest, ChangedNumbersAreProgress) {
  StepScanner scanner("");
  EXPECT_FALSE(scanner.Take("epochs: 10")) << "a setting";
  EXPECT_FALSE(scanner.Take("step 1 loss 0.9"));
  EXPECT_TRUE(scanner.Take("step 2 loss 0.8"));
  EXPECT_TRUE(scanner.Take("step 3 loss 0.8"));
  EXPECT_EQ(scanner.step(), 3);
  EXPECT_FALSE(scanner.Take("step 3 loss 0.7")) << "the same step again";
  EXPECT_FALSE(scanner.Take("nothing to see"));
}

TEST(StepLinesTest, LinesThatAlternateAreNone) {
  StepScanner scanner("");
  for (const char* line : {"step 1", "step 2", "step 3"}) scanner.Take(line);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(scanner.Take("waits for step 2"));
    EXPECT_FALSE(scanner.Take("waits for step 3"));
  }
}

TEST(StepLinesTest, ABarIsRedrawnInOneLine) {
  StepScanner scanner("");
  EXPECT_TRUE(
      scanner.Take("\r 1/9 [00:01<00:08]\r 2/9 [00:02<00:07]"
                   "\r 3/9 [00:03<00:06]"));
  EXPECT_EQ(scanner.step(), 3);
  EXPECT_EQ(scanner.total(), 9);
  EXPECT_FALSE(scanner.Take("\r 3/9 [00:59<01:06]")) << "only the clock runs";
}

TEST(StepLinesTest, AJobsOwnPatternReplacesThem) {
  StepScanner scanner("wrote shard ([0-9]+)");
  EXPECT_FALSE(scanner.Take("step 1"));
  EXPECT_TRUE(scanner.Take("wrote shard 7"));
  EXPECT_FALSE(scanner.Take("wrote shard 7"));
  EXPECT_TRUE(scanner.Take("wrote shard 8"));
  EXPECT_EQ(scanner.step(), 8);
}

TEST(StepLinesTest, WithoutGroupsEachLineCounts) {
  StepScanner scanner("still alive");
  EXPECT_TRUE(scanner.Take("still alive"));
  EXPECT_TRUE(scanner.Take("still alive"));
  EXPECT_FALSE(scanner.step());
}

TEST(ProgressPatternTest, WhatIsNoneIsRefusedWithItsReason) {
  EXPECT_FALSE(ProgressPattern::Make("").ok());
  const auto open = ProgressPattern::Make("step (");
  ASSERT_FALSE(open.ok());
  EXPECT_NE(Message(open.status()).find("step ("), std::string::npos);
  EXPECT_FALSE(ProgressPattern::Make("(a)(a)(a)(a)(a)(a)(a)(a)(a)").ok());
  EXPECT_FALSE(ProgressPattern::Make("(?=a)").ok()) << "not of RE2";
}

}  // namespace
}  // namespace lockstep::worker::agent
