#include "worker/agent/host/dead_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <string>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace lockstep::worker::agent {
namespace {

class DeadSocketsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-socket-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  // Dies with what is returned, its file stays.
  Fd Socket(const std::string& name) {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = JoinPath(dir_, name);
    memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(fd.get(), 1), 0);
    return fd;
  }
  bool Exists(const std::string& name) {
    return RealFileSystem()->Exists(JoinPath(dir_, name));
  }

  std::string dir_;
  const WallTime later_ = SystemClock().Now().wall + 2 * kYoungSocket;
};

constexpr char kLive[] = "0123456789abcdef.sock";
constexpr char kDead[] = "fedcba9876543210.sock";

TEST_F(DeadSocketsTest, OnlyWhatNobodyListensOnGoes) {
  const Fd live = Socket(kLive);
  Socket(kDead).Reset();
  EXPECT_FALSE(RemoveDeadSocket(JoinPath(dir_, kLive)));
  EXPECT_TRUE(RemoveDeadSocket(JoinPath(dir_, kDead)));
  EXPECT_FALSE(RemoveDeadSocket(JoinPath(dir_, kDead))) << "it is gone";
  EXPECT_TRUE(Exists(kLive));
  EXPECT_FALSE(Exists(kDead));
}

TEST_F(DeadSocketsTest, ASweepTakesDeadSocketsOfShimsAndNothingElse) {
  const Fd live = Socket(kLive);
  Socket(kDead).Reset();
  Socket("link.sock").Reset();
  const std::string file = JoinPath(dir_, "0000000000000000.sock");
  ASSERT_TRUE(RealFileSystem()->WriteAtomic(file, "a file").ok());
  EXPECT_EQ(RemoveDeadSockets(dir_, later_), 1);
  EXPECT_TRUE(Exists(kLive));
  EXPECT_FALSE(Exists(kDead));
  EXPECT_TRUE(Exists("link.sock"));
  EXPECT_TRUE(RealFileSystem()->Exists(file));
}

TEST_F(DeadSocketsTest, OneThatMayJustBeComingIsLeft) {
  Socket(kDead).Reset();
  EXPECT_EQ(RemoveDeadSockets(dir_, SystemClock().Now().wall), 0);
  EXPECT_TRUE(Exists(kDead));
  EXPECT_EQ(RemoveDeadSockets(JoinPath(dir_, "none"), later_), 0);
}

}  // namespace
}  // namespace lockstep::worker::agent
