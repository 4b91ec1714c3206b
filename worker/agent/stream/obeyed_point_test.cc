#include "worker/agent/stream/obeyed_point.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

namespace lockstep::worker::agent {
namespace {

class ObeyedPointTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-obeyed-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  // Of the history of 32 such digits.
  static WelcomeInfo Welcome(char history, uint64_t epoch) {
    WelcomeInfo welcome;
    welcome.history = std::string(kHistoryDigits, history);
    welcome.epoch = epoch;
    return welcome;
  }

  std::string dir_;
};

TEST_F(ObeyedPointTest, AnOlderStoreIsRefusedByTheNextDaemonToo) {
  ObeyedPoint point(RealFileSystem(), dir_);
  ASSERT_TRUE(point.Load().ok());
  const auto first = point.Obey(Welcome('a', 7));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(*first);
  EXPECT_FALSE(*point.Obey(Welcome('a', 7)));
  EXPECT_TRUE(*point.Obey(Welcome('a', 8)));

  ObeyedPoint next(RealFileSystem(), dir_);
  ASSERT_TRUE(next.Load().ok());
  EXPECT_EQ(next.point().epoch, 8u);
  EXPECT_EQ(next.Obey(Welcome('a', 7)).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(next.Obey(Welcome('b', 9)).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(ObeyedPointTest, AnOrderOfAnotherEpochIsRefused) {
  ObeyedPoint point(RealFileSystem(), dir_);
  ASSERT_TRUE(point.Load().ok());
  ASSERT_TRUE(point.Obey(Welcome('a', 7)).ok());
  EXPECT_TRUE(point.CheckOrder(7).ok());
  EXPECT_EQ(point.CheckOrder(8).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lockstep::worker::agent
