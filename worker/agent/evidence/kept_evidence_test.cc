// What is kept of ranks: it survives, it is of one job alone, and it is
// bounded.
#include "worker/agent/evidence/kept_evidence.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

namespace lockstep::worker::agent {
namespace {

using std::chrono::hours;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class KeptEvidenceTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-kept-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  static RankEvidence Rank(int32_t number, const std::string& line = "waits") {
    RankEvidence rank;
    rank.rank = number;
    rank.node = "a";
    rank.time = WallTime(hours(24));
    rank.log_lines = {line};
    ProcessEvidence& process = rank.processes.emplace_back();
    process.pid = 7;
    process.stack_source = kNativeSource;
    ThreadEvidence& thread = process.threads.emplace_back();
    thread.frames = {{"train", "load", "train.py", 88, false}};
    return rank;
  }
  std::string FileOf(const std::string& name) const {
    return JoinPath(JoinPath(dir_, "evidence"), name);
  }
  // As if it had been written then.
  void Age(const std::string& name, WallTime time) {
    const timespec at = {std::chrono::duration_cast<std::chrono::seconds>(
                             time.time_since_epoch())
                             .count(),
                         0};
    const timespec times[] = {at, at};
    ASSERT_EQ(utimensat(AT_FDCWD, FileOf(name).c_str(), times, 0), 0);
  }
  std::vector<std::string> Names() const {
    return RealFileSystem()->List(JoinPath(dir_, "evidence")).value();
  }

  std::string dir_;
  WallTime now_ = SystemClock().Now().wall;
};

TEST_F(KeptEvidenceTest, WhatIsWrittenIsReadByALaterDaemon) {
  const std::vector<RankEvidence> ranks = {Rank(0), Rank(3)};
  KeptEvidence kept(RealFileSystem(), dir_);
  ASSERT_TRUE(kept.Write({"job", 2}, "uid", ranks, now_).ok());
  const auto read =
      KeptEvidence(RealFileSystem(), dir_).Read({"job", 2}, "uid");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, ranks);
  struct stat info = {};
  ASSERT_EQ(stat(FileOf("job.g2").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "it has a user's log lines";
}

TEST_F(KeptEvidenceTest, AnotherJobOrGenerationHasNone) {
  KeptEvidence kept(RealFileSystem(), dir_);
  ASSERT_TRUE(kept.Write({"job", 2}, "uid", {Rank(0)}, now_).ok());
  for (const auto& [generation, uid] :
       std::vector<std::pair<Generation, std::string>>{{1, "uid"},
                                                       {2, "other"}}) {
    const auto read = kept.Read({"job", generation}, uid);
    EXPECT_EQ(read.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(Message(read.status()), HasSubstr("no evidence of job job g"));
  }
}

TEST_F(KeptEvidenceTest, ADamagedFileIsAnError) {
  KeptEvidence kept(RealFileSystem(), dir_);
  ASSERT_TRUE(kept.Write({"job", 2}, "uid", {Rank(0)}, now_).ok());
  std::string bytes = RealFileSystem()->Read(FileOf("job.g2")).value();
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(FileOf("job.g2"), bytes).ok());
  const auto read = kept.Read({"job", 2}, "uid");
  EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(read.status()), HasSubstr("job.g2"));
}

TEST_F(KeptEvidenceTest, OldFilesGo) {
  KeptEvidence kept(RealFileSystem(), dir_);
  for (const Generation generation : {1, 2}) {
    ASSERT_TRUE(kept.Write({"job", generation}, "uid", {Rank(0)}, now_).ok());
  }
  Age("job.g1", now_ - hours(31 * 24));
  Age("job.g2", now_ - hours(29 * 24));
  ASSERT_TRUE(kept.Write({"job", 3}, "uid", {Rank(0)}, now_).ok());
  EXPECT_THAT(Names(), ElementsAre("job.g2", "job.g3"));
}

TEST_F(KeptEvidenceTest, TheOldestGoWhenAllAreTooLarge) {
  KeptLimits limits;
  limits.bytes = 10'000;
  KeptEvidence kept(RealFileSystem(), dir_, limits);
  const std::string line(4'000, 'x');
  for (const Generation generation : {1, 2, 3}) {
    ASSERT_TRUE(
        kept.Write({"job", generation}, "uid", {Rank(0, line)}, now_).ok());
    Age("job.g" + std::to_string(generation),
        now_ - hours(10 - static_cast<int>(generation)));
  }
  EXPECT_THAT(Names(), ElementsAre("job.g2", "job.g3"));
  // The newest one stays, however large.
  limits.bytes = 10;
  ASSERT_TRUE(KeptEvidence(RealFileSystem(), dir_, limits)
                  .Write({"job", 4}, "uid", {Rank(0, line)}, now_)
                  .ok());
  EXPECT_THAT(Names(), ElementsAre("job.g4"));
}

TEST_F(KeptEvidenceTest, OneGenerationIsBounded) {
  KeptLimits limits;
  limits.largest = 5'000;
  KeptEvidence kept(RealFileSystem(), dir_, limits);
  const std::vector<RankEvidence> ranks = {Rank(0, std::string(2'000, 'x')),
                                           Rank(1, std::string(4'000, 'x'))};
  ASSERT_TRUE(kept.Write({"job", 1}, "uid", ranks, now_).ok());
  const auto read = kept.Read({"job", 1}, "uid");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ(read->at(0), ranks[0]);
  EXPECT_EQ(read->at(1).rank, 1);
  EXPECT_EQ(read->at(1).time, ranks[1].time);
  EXPECT_THAT(read->at(1).processes, IsEmpty());
  EXPECT_THAT(read->at(1).notes, ElementsAre(HasSubstr("is not kept")));
}

TEST_F(KeptEvidenceTest, ItGoesWithItsJob) {
  KeptEvidence kept(RealFileSystem(), dir_);
  ASSERT_TRUE(kept.Write({"gone", 1}, "uid-1", {Rank(0)}, now_).ok());
  ASSERT_TRUE(kept.Write({"gone", 2}, "uid-1", {Rank(0)}, now_).ok());
  ASSERT_TRUE(kept.Write({"stays", 1}, "uid-2", {Rank(0)}, now_).ok());
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(FileOf("broken.g1"), "?").ok());
  kept.Drop({"uid-1", "another"});
  EXPECT_THAT(Names(), ElementsAre("broken.g1", "stays.g1"));
  KeptEvidence(RealFileSystem(), dir_ + "/none").Drop({"uid-1"});
}

TEST_F(KeptEvidenceTest, ASweepNeedsNoNewEvidence) {
  KeptEvidence kept(RealFileSystem(), dir_);
  ASSERT_TRUE(kept.Write({"old", 1}, "uid-1", {Rank(0)}, now_).ok());
  ASSERT_TRUE(kept.Write({"new", 1}, "uid-2", {Rank(0)}, now_).ok());
  Age("old.g1", now_ - hours(31 * 24));
  kept.Sweep(now_);
  EXPECT_THAT(Names(), ElementsAre("new.g1"));
}

}  // namespace
}  // namespace lockstep::worker::agent
