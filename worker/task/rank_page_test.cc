#include "worker/task/rank_page.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "worker/task/rank_page_words.h"

namespace lockstep::worker::task {
namespace {

using Result = PageReader::Result;

class RankPageTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-page-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    path_ = dir_ + "/page";
  }
  void TearDown() override {
    unlink(path_.c_str());
    EXPECT_EQ(rmdir(dir_.c_str()), 0);
  }
  void PutWord(size_t word, uint64_t value) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(word * 8));
    file.write(reinterpret_cast<const char*>(&value), 8);
    ASSERT_TRUE(file.good());
  }

  std::string dir_;
  std::string path_;
  std::string error_;
};

RankCounters Counters() {
  RankCounters c;
  c.start_mono_nanos = 77;
  for (size_t i = 0; i < kTimedPhases; ++i) c.phase_seconds[i] = 0.5 * i;
  c.samples = 1;
  c.allreduce_bytes = 2;
  c.collectives = 3;
  c.steps_committed = 4;
  c.steps_skipped = 5;
  c.checkpoints_saved = 6;
  c.last_checkpoint_step = 7;
  c.total_steps = 8;
  c.global_batch = 9;
  c.epoch = 10;
  c.has_loss = true;
  c.last_loss = 0.25;
  c.has_learning_rate = true;
  c.last_learning_rate = 0.1;
  c.allreduce_busy_seconds = 11.5;
  c.straggler_lag_seconds = -0.125;
  c.input = {12, 13, 14, 15, 16.5, 17.5};
  c.checkpoint_bytes = 18;
  c.checkpoint_failures = 19;
  for (size_t i = 0; i < kCheckpointPhases; ++i) {
    c.checkpoint_seconds[i] = 20.5 + static_cast<double>(i);
  }
  c.values = {{"accuracy", 0.891}, {"top5", 0.99}};
  c.communication.late_rank = 30;
  c.communication.late_waited_seconds = 0.5;
  c.communication.longest_waits[0] = {31, 32, 33.5};
  c.communication.longest_waits[1] = {0, 1, 0.25};
  c.communication.straggler = {34, 100, 36, 0.375};
  c.communication.bus_bytes_per_second = 37e9;
  for (const double seconds : {0.0, 0.002, 0.5, 1e9}) {
    c.step_times.Observe(seconds);
    c.checkpoint_times.back().Observe(seconds);
  }
  return c;
}

TEST_F(RankPageTest, WhatIsWrittenIsRead) {
  auto writer = PageWriter::Create(path_, 3, &error_);
  ASSERT_NE(writer, nullptr) << error_;
  auto reader = PageReader::Open(path_, &error_);
  ASSERT_NE(reader, nullptr) << error_;
  RankPage page;
  ASSERT_EQ(reader->Read(&page, &error_), Result::kOk) << error_;
  EXPECT_EQ(page.progress.rank, 3u);
  EXPECT_EQ(page.progress.last_committed, -1);
  EXPECT_FALSE(page.has_counters);

  RankProgress progress;
  progress.generation = 2;
  progress.step = 100;
  progress.collective = 17;
  progress.last_committed = 99;
  progress.mono_nanos = 123456789;
  progress.phase = RankPhase::kAllReduce;
  writer->SetProgress(progress);
  writer->SetCounters(Counters());
  ASSERT_EQ(reader->Read(&page, &error_), Result::kOk) << error_;
  EXPECT_EQ(page.progress.generation, 2u);
  EXPECT_EQ(page.progress.step, 100u);
  EXPECT_EQ(page.progress.collective, 17u);
  EXPECT_EQ(page.progress.last_committed, 99);
  EXPECT_EQ(page.progress.mono_nanos, 123456789);
  EXPECT_EQ(page.progress.phase, RankPhase::kAllReduce);
  EXPECT_STREQ(RankPhaseName(page.progress.phase), "allreduce");
  ASSERT_TRUE(page.has_counters);
  PageWords want{};
  PageWords got{};
  EncodeCounters(Counters(), &want);
  EncodeCounters(page.counters, &got);
  EXPECT_EQ(got, want);
  EXPECT_EQ(page.counters.values, Counters().values);
  EXPECT_EQ(page.counters.allreduce_busy_seconds, 11.5);
  EXPECT_EQ(page.counters.straggler_lag_seconds, -0.125);
  EXPECT_EQ(page.counters.input.corrupt_records, 13u);
  EXPECT_EQ(page.counters.input.decode_seconds, 17.5);
  EXPECT_EQ(page.counters.checkpoint_failures, 19u);
  EXPECT_EQ(page.counters.checkpoint_seconds.back(), 24.5);
  EXPECT_EQ(page.counters.communication, Counters().communication);
  EXPECT_EQ(page.counters.step_times, Counters().step_times);
  EXPECT_EQ(page.counters.checkpoint_times, Counters().checkpoint_times);
}

TEST(TimeHistogramTest, BoundsBelongToTheBucketBelow) {
  TimeHistogram times;
  times.Observe(0.001);
  times.Observe(0.0011);
  times.Observe(100.1);
  times.Observe(-1);
  times.Observe(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(times.counts[0], 1u);
  EXPECT_EQ(times.counts[1], 1u);
  EXPECT_EQ(times.counts.back(), 1u);
  EXPECT_NEAR(times.sum, 100.1021, 1e-9);
}

TEST(RankPageWordsTest, CommunicationThatCannotBeIsNone) {
  PageWords words{};
  EncodeProgress({}, &words);
  EncodeCounters(Counters(), &words);
  words[kWordMagic] = kPageMagic;
  words[kWordLateRank] = 1 << 20;
  words[kWordLateWaited] = std::bit_cast<uint64_t>(-1.0);
  words[kWordStraggler] = ~uint64_t{0} - 7;
  words[kWordStragglerSteps] = ~uint64_t{0};
  words[kWordStragglerCost] = std::bit_cast<uint64_t>(9.0);
  words[kWordStepTimes] = ~uint64_t{0};
  RankPage page;
  std::string error;
  ASSERT_TRUE(DecodePage(words, &page, &error)) << error;
  const CommunicationReading& c = page.counters.communication;
  EXPECT_EQ(c.late_rank, -1);
  EXPECT_EQ(c.late_waited_seconds, 0);
  EXPECT_EQ(c.straggler.rank, -1);
  EXPECT_EQ(c.straggler.steps, 100u);
  EXPECT_EQ(c.straggler.late_steps, 100u);
  EXPECT_EQ(c.straggler.cost, 1);
  EXPECT_EQ(page.counters.step_times.counts[0], uint64_t{1} << 48);
}

TEST(RankPageWordsTest, APageOfTheSecondEditionKeepsWhatItHas) {
  PageWords words{};
  EncodeProgress({}, &words);
  EncodeCounters(Counters(), &words);
  words[kWordMagic] = kPageMagic;
  words[kWordBlock] = 1 | static_cast<uint64_t>(kWordSecondEnd - kWordBlock)
                              << 32;
  RankPage page;
  std::string error;
  ASSERT_TRUE(DecodePage(words, &page, &error)) << error;
  EXPECT_EQ(page.counters.allreduce_busy_seconds, 11.5);
  EXPECT_EQ(page.counters.communication, CommunicationReading());
}

// A rank of an older build says so by its block's length.
TEST_F(RankPageTest, AShorterBlockLacksWhatCameLater) {
  PageWords words{};
  words[kWordMagic] = kPageMagic;
  EncodeCounters(Counters(), &words);
  words[kWordBlock] = 1 | static_cast<uint64_t>(kWordFirstEnd - kWordBlock)
                              << 32;
  RankPage page;
  ASSERT_TRUE(DecodePage(words, &page, &error_)) << error_;
  ASSERT_TRUE(page.has_counters);
  EXPECT_EQ(page.counters.samples, 1u);
  EXPECT_EQ(page.counters.values, Counters().values);
  EXPECT_EQ(page.counters.allreduce_busy_seconds, 0);
  EXPECT_EQ(page.counters.input.bytes, 0u);
  EXPECT_EQ(page.counters.checkpoint_failures, 0u);
}

TEST_F(RankPageTest, TimesThatCannotBeAreNone) {
  PageWords words{};
  words[kWordMagic] = kPageMagic;
  EncodeCounters(Counters(), &words);
  for (const double bad : {std::nan(""), -1e300 * 1e300}) {
    for (const size_t word :
         {size_t{kWordBusySeconds}, size_t{kWordLagSeconds},
          size_t{kWordReadSeconds}, size_t{kWordCheckpointSeconds}}) {
      words[word] = std::bit_cast<uint64_t>(bad);
    }
    RankPage page;
    ASSERT_TRUE(DecodePage(words, &page, &error_)) << error_;
    EXPECT_EQ(page.counters.allreduce_busy_seconds, 0);
    EXPECT_EQ(page.counters.straggler_lag_seconds, 0);
    EXPECT_EQ(page.counters.input.read_seconds, 0);
    EXPECT_EQ(page.counters.checkpoint_seconds[0], 0);
  }
}

TEST_F(RankPageTest, AWaitIsReadBesideTheRest) {
  auto writer = PageWriter::Create(path_, 3, &error_);
  ASSERT_NE(writer, nullptr) << error_;
  auto reader = PageReader::Open(path_, &error_);
  ASSERT_NE(reader, nullptr) << error_;
  RankPage page;
  ASSERT_EQ(reader->Read(&page, &error_), Result::kOk) << error_;
  EXPECT_EQ(page.wait, RankWait()) << "nothing was said";
  uint64_t beat = 0;
  for (const RankWait& wait :
       {RankWait{}, RankWait{0, true, false, -1, 0},
        RankWait{0, true, true, -1, 1}, RankWait{0, true, true, 0, 2},
        RankWait{0, true, true, 65535, (uint64_t{1} << 44) - 1}}) {
    writer->SetWait(wait);
    // Counters and progress leave it.
    writer->SetCounters(Counters());
    writer->SetProgress({});
    ASSERT_EQ(reader->Read(&page, &error_), Result::kOk) << error_;
    RankWait expected = wait;
    expected.beat = ++beat;
    EXPECT_EQ(page.wait, expected) << beat;
    EXPECT_EQ(page.counters.values, Counters().values);
  }
  // Of a program that writes anything there.
  PutWord(kWordWait, (uint64_t{7} << 20) + 3 + 65536);
  ASSERT_EQ(reader->Read(&page, &error_), Result::kOk) << error_;
  EXPECT_EQ(page.wait, (RankWait{beat, false, false, -1, 0}));
}

TEST_F(RankPageTest, ASnapshotIsNeverHalfOfTwo) {
  auto writer = PageWriter::Create(path_, 0, &error_);
  ASSERT_NE(writer, nullptr) << error_;
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    RankProgress progress;
    RankCounters counters;
    for (uint64_t i = 1; !stop.load(); ++i) {
      progress.generation = progress.step = progress.collective = i;
      progress.last_committed = progress.mono_nanos = static_cast<int64_t>(i);
      writer->SetProgress(progress);
      counters.samples = counters.allreduce_bytes = counters.epoch = i;
      counters.values.assign(kMaxReportedValues,
                             {std::to_string(i), static_cast<double>(i)});
      writer->SetCounters(counters);
    }
  });
  auto reader = PageReader::Open(path_, &error_);
  ASSERT_NE(reader, nullptr) << error_;
  int good = 0;
  uint64_t last = 0;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while ((good < 1000 || last == 0) &&
         std::chrono::steady_clock::now() < deadline) {
    RankPage page;
    const Result result = reader->Read(&page, &error_);
    ASSERT_NE(result, Result::kBad) << error_;
    if (result != Result::kOk) continue;
    ++good;
    const uint64_t i = page.progress.step;
    ASSERT_GE(i, last);
    last = i;
    ASSERT_EQ(page.progress.generation, i);
    ASSERT_EQ(page.progress.collective, i);
    ASSERT_EQ(page.progress.mono_nanos, static_cast<int64_t>(i));
    if (!page.has_counters) continue;
    // Counters of step i or, when the lock fell between the two, of i - 1.
    const uint64_t c = page.counters.samples;
    ASSERT_TRUE(c == i || c + 1 == i) << c << " at " << i;
    ASSERT_EQ(page.counters.epoch, c);
    ASSERT_EQ(page.counters.values.size(), kMaxReportedValues);
    for (const auto& [name, value] : page.counters.values) {
      ASSERT_EQ(name, std::to_string(c));
      ASSERT_EQ(value, static_cast<double>(c));
    }
  }
  stop.store(true);
  thread.join();
  EXPECT_GE(good, 1000);
  EXPECT_GT(last, 0u);
}

TEST_F(RankPageTest, AWriterThatDiedWhileWritingLeavesBusyAndALastLook) {
  auto writer = PageWriter::Create(path_, 0, &error_);
  ASSERT_NE(writer, nullptr) << error_;
  RankProgress progress;
  progress.step = 5;
  writer->SetProgress(progress);
  auto reader = PageReader::Open(path_, &error_);
  PutWord(kWordSequence, 1);
  RankPage page;
  EXPECT_EQ(reader->Read(&page, &error_), Result::kBusy);
  EXPECT_EQ(reader->ReadLast(&page, &error_), Result::kOk);
  EXPECT_EQ(page.progress.step, 5u);
}

TEST_F(RankPageTest, AFileCutShortIsBadAndHarmless) {
  auto writer = PageWriter::Create(path_, 0, &error_);
  auto reader = PageReader::Open(path_, &error_);
  ASSERT_EQ(truncate(path_.c_str(), 100), 0);
  RankPage page;
  EXPECT_EQ(reader->Read(&page, &error_), Result::kBad);
  EXPECT_EQ(error_, "the rank's page is shorter than 4096 bytes");
  ASSERT_EQ(truncate(path_.c_str(), 0), 0);
  EXPECT_EQ(reader->ReadLast(&page, &error_), Result::kBad);
}

TEST_F(RankPageTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_EQ(PageReader::Open(path_, &error_), nullptr);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(PageReader::Open(path_, &error_), nullptr);
  EXPECT_NE(error_.find("not a regular file"), std::string::npos) << error_;
  unlink(path_.c_str());
  ASSERT_EQ(symlink("/etc/passwd", path_.c_str()), 0);
  EXPECT_EQ(PageReader::Open(path_, &error_), nullptr);
  EXPECT_EQ(PageWriter::Create(path_, 0, &error_), nullptr);
}

TEST(DecodePageTest, ValuesThatCannotBeAreReplaced) {
  PageWords words{};
  words[kWordMagic] = kPageMagic;
  RankCounters counters = Counters();
  counters.phase_seconds[0] = std::numeric_limits<double>::quiet_NaN();
  counters.phase_seconds[1] = -1;
  counters.last_loss = std::numeric_limits<double>::infinity();
  counters.values = {{"nan", std::numeric_limits<double>::quiet_NaN()},
                     {"two words\n", 1},
                     {std::string(40, 'x'), 2},
                     {"", 3}};
  EncodeCounters(counters, &words);
  words[kWordPhaseAndRank] = 1234;
  words[kWordLastCommitted] = static_cast<uint64_t>(-17);
  // The name that fills all of its 32 bytes, with no NUL.
  uint64_t* name = &words[kWordValues + 2 * 5];
  for (int i = 0; i < 4; ++i) name[i] = 0x7878787878787878ull;
  RankPage page;
  std::string error;
  ASSERT_TRUE(DecodePage(words, &page, &error)) << error;
  EXPECT_EQ(page.progress.phase, RankPhase::kOther);
  EXPECT_EQ(page.progress.last_committed, -1);
  EXPECT_EQ(page.counters.phase_seconds[0], 0);
  EXPECT_EQ(page.counters.phase_seconds[1], 0);
  EXPECT_FALSE(page.counters.has_loss);
  ASSERT_EQ(page.counters.values.size(), 2u);
  EXPECT_EQ(page.counters.values[0].first, "two_words_");
  EXPECT_EQ(page.counters.values[1].first, std::string(31, 'x'));
}

TEST(DecodePageTest, ThePhasesOfAnOlderRankKeepTheirNumbers) {
  PageWords words{};
  words[kWordMagic] = kPageMagic;
  EncodeCounters(Counters(), &words);
  RankPage page;
  std::string error;
  ASSERT_TRUE(DecodePage(words, &page, &error)) << error;
  EXPECT_EQ(page.counters.phase_seconds, Counters().phase_seconds);
  // A rank that knows nothing of compiling: its block ends before.
  words[kWordBlock] = 1 | uint64_t{kWordThirdEnd - kWordBlock} << 32;
  ASSERT_TRUE(DecodePage(words, &page, &error)) << error;
  EXPECT_EQ(page.counters.phase_seconds[static_cast<size_t>(RankPhase::kOther)],
            3.5);
  EXPECT_EQ(
      page.counters.phase_seconds[static_cast<size_t>(RankPhase::kCompile)], 0);
  EXPECT_EQ(page.counters.checkpoint_times, Counters().checkpoint_times);
  const std::pair<RankPhase, uint64_t> numbers[] = {{RankPhase::kInput, 0},
                                                    {RankPhase::kOther, 7},
                                                    {RankPhase::kForming, 8},
                                                    {RankPhase::kFinished, 9},
                                                    {RankPhase::kCompile, 10}};
  for (const auto& [phase, number] : numbers) {
    RankProgress progress;
    progress.phase = phase;
    EncodeProgress(progress, &words);
    EXPECT_EQ(words[kWordPhaseAndRank], number);
    ASSERT_TRUE(DecodePage(words, &page, &error)) << error;
    EXPECT_EQ(page.progress.phase, phase);
  }
}

TEST(DecodePageTest, AnotherBlockVersionLeavesProgress) {
  PageWords words{};
  words[kWordMagic] = kPageMagic;
  EncodeCounters(Counters(), &words);
  words[kWordBlock] = 2;
  words[kWordStep] = 8;
  RankPage page;
  std::string error;
  ASSERT_TRUE(DecodePage(words, &page, &error));
  EXPECT_FALSE(page.has_counters);
  EXPECT_EQ(page.progress.step, 8u);
  words[kWordMagic] ^= 1;
  EXPECT_FALSE(DecodePage(words, &page, &error));
}

TEST(DecodePageTest, AnyGarbageIsTakenWithFiniteNumbersAndPlainText) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    PageWords words;
    for (uint64_t& word : words) word = random();
    words[kWordMagic] = kPageMagic;
    words[kWordBlock] = 1;
    RankPage page;
    std::string error;
    ASSERT_TRUE(DecodePage(words, &page, &error));
    EXPECT_LE(page.counters.values.size(), kMaxReportedValues);
    for (const double s : page.counters.phase_seconds) {
      EXPECT_TRUE(std::isfinite(s) && s >= 0);
    }
    for (const auto& [name, value] : page.counters.values) {
      EXPECT_TRUE(std::isfinite(value));
      EXPECT_LT(name.size(), kReportedNameBytes);
      for (const char c : name) EXPECT_TRUE(c > ' ' && c < 0x7f);
    }
  }
}

}  // namespace
}  // namespace lockstep::worker::task
