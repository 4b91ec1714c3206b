#include "common/os/as_user.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/base/file.h"

namespace lockstep {
namespace {

TEST(AsUserTest, FilesAreTheUsersAndRootsRightsComeBack) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
  char name[] = "/tmp/lockstep-as-user-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string dir = name;
  ASSERT_EQ(chmod(name, 0700), 0);
  {
    const AsUser as(12345, 12346, {12346, 12347});
    ASSERT_TRUE(as.ok());
    EXPECT_NE(mkdir((dir + "/no").c_str(), 0755), 0);
    EXPECT_EQ(errno, EACCES);
  }
  // The second of the groups is enough.
  ASSERT_EQ(chown(name, 0, 12347), 0);
  ASSERT_EQ(chmod(name, 0770), 0);
  {
    const AsUser as(12345, 12346, {12346, 12347});
    ASSERT_TRUE(as.ok());
    EXPECT_EQ(mkdir((dir + "/made").c_str(), 0755), 0);
  }
  struct stat info {};
  ASSERT_EQ(stat((dir + "/made").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 12345u);
  EXPECT_EQ(info.st_gid, 12346u);
  EXPECT_TRUE(RealFileSystem()->RemoveAll(dir).ok());
}

}  // namespace
}  // namespace lockstep
