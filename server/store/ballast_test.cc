#include "server/store/ballast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "common/base/file.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class BallastTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-ballast-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    options_.dir = dir_ = name;
    options_.available = [this](const std::string& dir) -> StatusOr<uint64_t> {
      EXPECT_EQ(dir, dir_);
      return available_;
    };
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  // Of the disk.
  uint64_t Bytes() {
    struct stat info {};
    const std::string path = JoinPath(dir_, Ballast::kFile);
    return ::stat(path.c_str(), &info) == 0
               ? static_cast<uint64_t>(info.st_blocks) * 512
               : 0;
  }

  std::string dir_;
  BallastOptions options_;
  uint64_t available_ = 1024 * kMiB;
};

TEST_F(BallastTest, IsGivenUpOnAFullDiskAndTakenAgain) {
  Ballast ballast(options_);
  EXPECT_EQ(ballast.held_bytes(), 0u);
  EXPECT_TRUE(ballast.CheckSpace().ok());
  ballast.Look();
  EXPECT_EQ(ballast.held_bytes(), 16 * kMiB);
  EXPECT_GE(Bytes(), 16 * kMiB);
  available_ = 4 * kMiB;
  ballast.Look();
  EXPECT_GE(Bytes(), 16 * kMiB) << "there is still enough beside it";
  available_ = 4 * kMiB - 1;
  ballast.Look();
  EXPECT_EQ(Bytes(), 0u);
  EXPECT_EQ(ballast.held_bytes(), 0u);
  const Status full = ballast.CheckSpace();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(full), "DISK_FULL");
  EXPECT_THAT(Message(full), HasSubstr("the disk of " + dir_ + " is full"));
  // What was given up is not space for new jobs.
  available_ = 20 * kMiB;
  ballast.Look();
  EXPECT_FALSE(ballast.CheckSpace().ok());
  EXPECT_EQ(Bytes(), 0u);
  available_ = 24 * kMiB;
  ballast.Look();
  EXPECT_TRUE(ballast.CheckSpace().ok());
  EXPECT_GE(Bytes(), 16 * kMiB);
}

TEST_F(BallastTest, TheNextCoordinatorFindsIt) {
  Ballast(options_).Look();
  // Nearly full by now: what is there is given up for what the start writes.
  available_ = 0;
  Ballast next(options_);
  next.Look();
  EXPECT_EQ(Bytes(), 0u);
  EXPECT_FALSE(next.CheckSpace().ok());
  // And the one after it, which finds none.
  Ballast last(options_);
  last.Look();
  EXPECT_EQ(ReasonOf(last.CheckSpace()), "DISK_FULL");
}

// As on a small disk that is new: there is no room for the file, and room for
// jobs.
TEST_F(BallastTest, WithoutRoomForItEverythingIsAcceptedUntilTheDiskIsFull) {
  available_ = 23 * kMiB;
  Ballast ballast(options_);
  ballast.Look();
  EXPECT_EQ(Bytes(), 0u);
  EXPECT_TRUE(ballast.CheckSpace().ok());
  available_ = 4 * kMiB;
  ballast.Look();
  EXPECT_TRUE(ballast.CheckSpace().ok());
  available_ = 4 * kMiB - 1;
  ballast.Look();
  EXPECT_EQ(ReasonOf(ballast.CheckSpace()), "DISK_FULL");
  available_ = 8 * kMiB - 1;
  ballast.Look();
  EXPECT_FALSE(ballast.CheckSpace().ok()) << "not in and out with each job";
  available_ = 8 * kMiB;
  ballast.Look();
  EXPECT_TRUE(ballast.CheckSpace().ok());
  available_ = 24 * kMiB;
  ballast.Look();
  EXPECT_TRUE(ballast.CheckSpace().ok());
  EXPECT_GE(Bytes(), 16 * kMiB);
}

TEST_F(BallastTest, AStartThatFailsOnAFullDiskSaysWhatToFree) {
  const Ballast ballast(options_);
  const Status failed = Internal("opening x: disk I/O error");
  EXPECT_EQ(ballast.ExplainStart(failed), failed) << "there is room";
  available_ = kMiB - 4096;
  const Status full = ballast.ExplainStart(failed);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(full), HasSubstr("the disk of " + dir_ + " is full"));
  EXPECT_THAT(Message(full), HasSubstr("free 4096 bytes"));
  EXPECT_THAT(Message(full), HasSubstr("disk I/O error"));
}

// A hole is no space.
TEST_F(BallastTest, AFileThatHoldsNothingIsMadeAnew) {
  const std::string path = JoinPath(dir_, Ballast::kFile);
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, "").ok());
  ASSERT_EQ(::truncate(path.c_str(), 16 * kMiB), 0);
  ASSERT_LT(Bytes(), kMiB);
  Ballast ballast(options_);
  ballast.Look();
  EXPECT_EQ(ballast.held_bytes(), 16 * kMiB);
  EXPECT_GE(Bytes(), 16 * kMiB);
}

// Where it cannot be had for another reason, nothing is refused.
TEST_F(BallastTest, ACoordinatorWithoutOneWorks) {
  const std::string path = JoinPath(dir_, Ballast::kFile);
  ASSERT_TRUE(RealFileSystem()->MakeDirs(JoinPath(path, "x"), 0700).ok());
  Ballast ballast(options_);
  ballast.Look();
  EXPECT_EQ(ballast.held_bytes(), 0u);
  EXPECT_TRUE(ballast.CheckSpace().ok());
  options_.available = [](const std::string&) -> StatusOr<uint64_t> {
    return Internal("no such call");
  };
  Ballast blind(options_);
  blind.Look();
  EXPECT_TRUE(blind.CheckSpace().ok());
}

}  // namespace
}  // namespace lockstep::server
