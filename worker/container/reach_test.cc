#include "worker/container/reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"

namespace lockstep::worker::container {
namespace {

using testing::HasSubstr;

class ReachTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    char name[] = "/tmp/lockstep-reach-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    ASSERT_EQ(chmod(name, 0755), 0);
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_ + "/closed/data").ok());
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir_ + "/open").ok());
  }
  void TearDown() override { (void)RealFileSystem()->RemoveAll(dir_); }

  std::string dir_;
  const ContainerUser user_{12345, 12345, {}};
};

TEST_F(ReachTest, WhatAUserCanReachIsGivenWithoutLinks) {
  ASSERT_EQ(symlink((dir_ + "/open").c_str(), (dir_ + "/link").c_str()), 0);
  const auto real = ReachAs(user_, dir_ + "/link");
  ASSERT_TRUE(real.ok()) << real.status();
  EXPECT_EQ(real->path, dir_ + "/open");
  struct stat info {};
  ASSERT_EQ(stat((dir_ + "/open").c_str(), &info), 0);
  EXPECT_EQ(real->device, info.st_dev);
  EXPECT_EQ(real->inode, info.st_ino);
  const auto again =
      ReachWithin(user_, dir_ + "/link", std::chrono::minutes(1));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->inode, info.st_ino);
}

TEST_F(ReachTest, BelowAClosedDirectoryNothingIsReached) {
  ASSERT_EQ(chmod((dir_ + "/closed").c_str(), 0700), 0);
  const auto real = ReachAs(user_, dir_ + "/closed/data");
  EXPECT_EQ(real.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(real.status()), HasSubstr("user 12345 cannot reach"));
  // And the thread is root again.
  EXPECT_EQ(access((dir_ + "/closed/data").c_str(), W_OK), 0);
  EXPECT_TRUE(RealFileSystem()->MakeDirs(dir_ + "/closed/more").ok());
  struct stat info {};
  ASSERT_EQ(stat((dir_ + "/closed/more").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u);
}

TEST_F(ReachTest, GroupsCount) {
  ASSERT_EQ(chown((dir_ + "/closed").c_str(), 0, 4242), 0);
  ASSERT_EQ(chmod((dir_ + "/closed").c_str(), 0710), 0);
  EXPECT_FALSE(ReachAs(user_, dir_ + "/closed/data").ok());
  const ContainerUser member{12345, 12345, {4242}};
  EXPECT_TRUE(ReachAs(member, dir_ + "/closed/data").ok());
}

TEST(ReachOwnTest, WhoIsNotRootReachesItsOwn) {
  if (geteuid() == 0) GTEST_SKIP() << "needs a user who is not root";
  const ContainerUser own{geteuid(), getegid(), {}};
  EXPECT_TRUE(ReachAs(own, "/tmp").ok());
  EXPECT_FALSE(ReachAs({geteuid() + 1, getegid(), {}}, "/tmp").ok());
}

TEST_F(ReachTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(ReachAs(user_, dir_ + "/none").status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::worker::container
