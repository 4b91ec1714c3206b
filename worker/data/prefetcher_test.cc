#include "worker/data/prefetcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "worker/data/testing.h"

namespace lockstep::worker::data {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSamples = 100;

MonoTime In(double seconds) { return MonotonicNow() + Seconds(seconds); }

class PrefetcherTest : public DataTest {
 protected:
  void SetUp() override {
    WriteNumbered(Path("data"), kSamples, 30);
    OpenData();
    options_.shape = {2, 2, 1};
  }
  void OpenData() {
    const auto data = Dataset::Open(fs_, {Path("data")});
    ASSERT_TRUE(data.ok()) << data.status();
    data_ = *data;
  }
  ShardPlan Plan(uint64_t global_batch, bool shuffle = true) {
    return *ShardPlan::Create(data_->counts(), {5, global_batch, shuffle});
  }
  std::unique_ptr<Prefetcher> Start(uint64_t global_batch) {
    auto prefetcher = Prefetcher::Start(data_, Plan(global_batch), options_);
    EXPECT_TRUE(prefetcher.ok()) << prefetcher.status();
    return *std::move(prefetcher);
  }
  // The labels of everything up to the end, checking pixels against labels.
  std::vector<int32_t> ReadAll(Prefetcher* prefetcher) {
    std::vector<int32_t> labels;
    Batch batch;
    for (;;) {
      const Status status = prefetcher->Next(&batch, In(30));
      if (status.code() == StatusCode::kOutOfRange) return labels;
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) return labels;
      EXPECT_EQ(batch.labels.size(), batch.count);
      EXPECT_EQ(batch.pixels.size(), batch.count * 4);
      for (size_t i = 0; i < batch.count; ++i) {
        EXPECT_EQ(batch.pixels[4 * i], batch.labels[i]);
        labels.push_back(batch.labels[i]);
      }
    }
  }

  std::shared_ptr<const Dataset> data_;
  PrefetcherOptions options_;
};

TEST_F(PrefetcherTest, BatchesComeInTheOrderOfThePlanForAnyThreadsAndDepth) {
  options_.end_epoch = 2;
  const std::vector<int32_t> expected = ReadAll(Start(16).get());
  EXPECT_EQ(expected.size(), 2 * kSamples);
  EXPECT_EQ(
      std::set<int32_t>(expected.begin(), expected.begin() + kSamples).size(),
      kSamples);
  for (const size_t threads : {1, 4}) {
    for (const size_t depth : {1, 3, 64}) {
      options_.threads = threads;
      options_.depth = depth;
      EXPECT_EQ(ReadAll(Start(16).get()), expected) << threads << " " << depth;
    }
  }
}

TEST_F(PrefetcherTest, RanksTogetherReadEachStepOfOneRank) {
  options_.end_epoch = 1;
  const auto alone = Start(32);
  std::vector<std::unique_ptr<Prefetcher>> ranks;
  options_.world = 3;
  for (options_.rank = 0; options_.rank < 3; ++options_.rank) {
    ranks.push_back(Start(32));
  }
  for (;;) {
    Batch whole;
    const Status status = alone->Next(&whole, In(30));
    std::vector<int32_t> labels;
    for (const auto& rank : ranks) {
      Batch part;
      ASSERT_EQ(rank->Next(&part, In(30)).code(), status.code());
      if (!status.ok()) continue;
      EXPECT_EQ(part.global_count, whole.count);
      EXPECT_EQ(part.end, whole.end);
      labels.insert(labels.end(), part.labels.begin(), part.labels.end());
    }
    if (!status.ok()) break;
    EXPECT_EQ(labels, whole.labels);
  }
}

TEST_F(PrefetcherTest, RankWithoutSamplesGetsAnEmptyBatchOfTheStep) {
  options_.start = {0, 99};  // One sample is left.
  options_.rank = 1;
  options_.world = 2;
  const auto prefetcher = Start(10);
  Batch batch;
  ASSERT_TRUE(prefetcher->Next(&batch, In(30)).ok());
  EXPECT_EQ(batch.count, 0u);
  EXPECT_EQ(batch.global_count, 1u);
  EXPECT_EQ(batch.end, (DataCursor{1, 0}));
  ASSERT_TRUE(prefetcher->Next(&batch, In(30)).ok());
  EXPECT_EQ(batch.count, 5u);
  EXPECT_EQ(batch.begin, (DataCursor{1, 0}));
}

TEST_F(PrefetcherTest, RestartAtACursorGoesOnWithTheSameSamples) {
  options_.end_epoch = 2;
  const std::vector<int32_t> all = ReadAll(Start(16).get());
  std::vector<int32_t> joined;
  DataCursor cursor;
  // A new prefetcher for each step, as if every step lost a member.
  while (cursor.epoch < 2) {
    options_.start = cursor;
    const auto prefetcher = Start(16);
    Batch batch;
    ASSERT_TRUE(prefetcher->Next(&batch, In(30)).ok());
    EXPECT_EQ(batch.begin, cursor);
    joined.insert(joined.end(), batch.labels.begin(), batch.labels.end());
    cursor = batch.end;
  }
  EXPECT_EQ(joined, all);
}

TEST_F(PrefetcherTest, EvaluationReadsEverySampleOnceInOrderAndEnds) {
  options_.end_epoch = 1;
  auto prefetcher =
      Prefetcher::Start(data_, Plan(64, /*shuffle=*/false), options_);
  ASSERT_TRUE(prefetcher.ok());
  const std::vector<int32_t> labels = ReadAll(prefetcher->get());
  ASSERT_EQ(labels.size(), kSamples);
  EXPECT_TRUE(std::is_sorted(labels.begin(), labels.end()));
  Batch batch;
  EXPECT_EQ((*prefetcher)->Next(&batch, In(30)).code(),
            StatusCode::kOutOfRange);
}

TEST_F(PrefetcherTest, DamageIsReportedAfterTheGoodStepsAndForEver) {
  const std::string path = data_->path(1);
  const auto file = TfRecordFile::Open(path);
  const uint64_t offset = (*file)->offset(3);  // Sample 33.
  Flip(path, offset + 20);
  OpenData();
  auto started =
      Prefetcher::Start(data_, Plan(10, /*shuffle=*/false), options_);
  ASSERT_TRUE(started.ok());
  Batch batch;
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE((*started)->Next(&batch, In(30)).ok());
  }
  for (int again = 0; again < 2; ++again) {
    const Status status = (*started)->Next(&batch, In(30));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr(path));
    EXPECT_THAT(Message(status), HasSubstr(fmt::format("byte {}:", offset)));
  }
  EXPECT_EQ((*started)->counters().samples, 30u);
  EXPECT_GE((*started)->counters().corrupt, 1u);
}

TEST_F(PrefetcherTest, LabelsAndShapesThatDoNotFitNameTheRecord) {
  options_.classes = 50;
  Batch batch;
  Status status;
  const auto labels = Start(100);
  status = labels->Next(&batch, In(30));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("is out of range for 50 classes"));
  EXPECT_THAT(Message(status), HasSubstr(".tfrec: record "));

  options_.classes = 0;
  options_.shape = {4, 1, 1};
  const auto shapes = Start(100);
  status = shapes->Next(&batch, In(30));
  EXPECT_THAT(Message(status),
              HasSubstr("2 x 2 x 1, but the data set uses 4 x 1 x 1"));
}

TEST_F(PrefetcherTest, NextWithAPassedDeadlineReturnsAtOnceAndLosesNothing) {
  options_.end_epoch = 1;
  const auto prefetcher = Start(16);
  Batch batch;
  uint64_t samples = 0;
  for (;;) {
    // Passed already: what is ready comes, the rest is DeadlineExceeded.
    const Status status = prefetcher->Next(&batch, MonoTime());
    if (status.ok()) samples += batch.count;
    if (status.code() == StatusCode::kOutOfRange) break;
    ASSERT_TRUE(status.ok() || status.code() == StatusCode::kDeadlineExceeded);
    std::this_thread::yield();
  }
  EXPECT_EQ(samples, kSamples);
}

TEST_F(PrefetcherTest, StopEndsAWaitingNext) {
  const auto prefetcher = Start(10);
  std::atomic<uint64_t> handed_out = 0;
  Status last;
  std::thread consumer([&] {
    Batch batch;
    while ((last = prefetcher->Next(&batch, In(60))).ok()) ++handed_out;
  });
  const MonoTime deadline = In(30);
  while (handed_out < 20 && MonotonicNow() < deadline) {
    std::this_thread::yield();
  }
  prefetcher->Stop();
  consumer.join();
  EXPECT_EQ(last.code(), StatusCode::kCancelled);
  EXPECT_GE(handed_out, 20u);
}

TEST_F(PrefetcherTest, DestructorEndsThreadsThatWaitForSpace) {
  options_.depth = 2;
  options_.threads = 4;
  for (int i = 0; i < 50; ++i) Start(10);
}

TEST_F(PrefetcherTest, CountersCountWhatWasHandedOut) {
  options_.end_epoch = 1;
  const auto prefetcher = Start(16);
  ReadAll(prefetcher.get());
  const PrefetcherCounters counters = prefetcher->counters();
  EXPECT_EQ(counters.steps, 7u);
  EXPECT_EQ(counters.samples, kSamples);
  EXPECT_EQ(counters.bytes, 4 * kSamples);
  EXPECT_GT(counters.waited, Duration::zero());
  EXPECT_GT(counters.reading, Duration::zero());
  EXPECT_GT(counters.decoding, Duration::zero());
  EXPECT_EQ(counters.corrupt, 0u);
  EXPECT_EQ(counters.queued, 0u);
}

TEST_F(PrefetcherTest, WhatIsMadeAheadIsQueued) {
  options_.depth = 3;
  const auto prefetcher = Start(10);
  const MonoTime deadline = In(30);
  while (prefetcher->counters().queued < 3 && MonotonicNow() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(prefetcher->counters().queued, 3u);
}

TEST_F(PrefetcherTest, OptionsOutOfRangeAreRefused) {
  const auto refused = [&](PrefetcherOptions options) {
    return Prefetcher::Start(data_, Plan(10), options).status().code() ==
           StatusCode::kInvalidArgument;
  };
  PrefetcherOptions options = options_;
  options.rank = 1;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.depth = 0;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.threads = 0;
  EXPECT_TRUE(refused(options));
  options = options_;
  options.start = {0, kSamples + 1};
  EXPECT_TRUE(refused(options));
  options = options_;
  options.shape = {0, 1, 1};
  EXPECT_TRUE(refused(options));
}

}  // namespace
}  // namespace lockstep::worker::data
