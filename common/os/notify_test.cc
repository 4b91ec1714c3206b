#include "common/os/notify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace lockstep {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::IsEmpty;

// What the service manager has: a bound datagram socket.
class NotifyTest : public testing::Test {
 protected:
  void SetUp() override {
    char dir[] = "/tmp/notify-test-XXXXXX";
    ASSERT_NE(mkdtemp(dir), nullptr);
    dir_ = dir;
    path_ = dir_ + "/notify";
    Listen(path_);
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(dir_.c_str());
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
      unsetenv(name);
  }
  // `name` as in $NOTIFY_SOCKET.
  void Listen(const std::string& name) {
    listener_.Reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, name.data(), name.size());
    socklen_t size = sizeof(address);
    if (name[0] == '@') {
      address.sun_path[0] = '\0';
      size =
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    }
    ASSERT_EQ(
        bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  }
  // All that has come; a datagram on a Unix socket is there once it is sent.
  std::vector<std::string> Heard() {
    std::vector<std::string> heard;
    char buffer[4096];
    for (;;) {
      const ssize_t n =
          recv(listener_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (n < 0) return heard;
      heard.emplace_back(buffer, static_cast<size_t>(n));
    }
  }

  std::string dir_;
  std::string path_;
  Fd listener_;
  const MonoTime start_{1h};
};

TEST_F(NotifyTest, TellsReadyStatusAndStopping) {
  Notifier notifier(path_, Duration{});
  EXPECT_TRUE(notifier.enabled());
  notifier.SetStatus("loading");
  notifier.Ready(start_);
  notifier.SetStatus("2 jobs run");
  notifier.SetStatus("2 jobs run");
  notifier.SetStatus("two\nlines");
  notifier.Stopping();
  EXPECT_THAT(Heard(),
              ElementsAre("STATUS=loading", "READY=1", "STATUS=2 jobs run",
                          "STATUS=two lines", "STOPPING=1"));
}

// A socket takes a few datagrams until they are read.
TEST_F(NotifyTest, AStatusThatFindsNoPlaceIsToldTheNextTime) {
  Notifier notifier(path_, 30s);
  notifier.Ready(start_);
  for (int i = 1; i <= 2000; ++i) notifier.Turn(start_ + i * 10s);
  notifier.SetStatus("2 jobs run");
  std::vector<std::string> heard = Heard();
  notifier.SetStatus("2 jobs run");
  for (const std::string& more : Heard()) heard.push_back(more);
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "STATUS=2 jobs run"), 1);
}

TEST_F(NotifyTest, ThatItIsReadyIsToldOnceThereIsAPlace) {
  Notifier first(path_, 30s);
  first.Ready(start_);
  for (int i = 1; i <= 2000; ++i) first.Turn(start_ + i * 10s);
  Notifier notifier(path_, 30s);
  notifier.Ready(start_);
  const size_t before = Heard().size();
  notifier.Turn(start_);
  // All of them are there where a socket takes so many.
  EXPECT_EQ(Heard().size(), before <= 2001 ? 1u : 0u);
}

TEST_F(NotifyTest, PingsAreThirdsOfTheWatchdogsTimeAndOnlyOnceReady) {
  Notifier notifier(path_, 30s);
  notifier.Turn(start_);
  EXPECT_THAT(Heard(), IsEmpty());
  notifier.Ready(start_);
  Heard();
  for (MonoTime now = start_; now < start_ + 35s; now += 100ms)
    notifier.Turn(now);
  EXPECT_THAT(Heard(), ElementsAre("WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"));
  EXPECT_LT(notifier.longest_turn(), 10s);
}

TEST_F(NotifyTest, WithoutAWatchdogNothingIsPinged) {
  Notifier notifier(path_, Duration{});
  notifier.Ready(start_);
  Heard();
  notifier.Turn(start_ + 1000s);
  EXPECT_THAT(Heard(), IsEmpty());
  EXPECT_EQ(notifier.longest_turn(), Duration::max());
}

TEST_F(NotifyTest, AnAbstractSocket) {
  const std::string name = "@lockstep-notify-" + std::to_string(getpid());
  Listen(name);
  Notifier notifier(name, Duration{});
  notifier.Ready(start_);
  EXPECT_THAT(Heard(), ElementsAre("READY=1"));
}

TEST_F(NotifyTest, TheEnvironmentIsTakenAndNotHandedOn) {
  setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  Notifier notifier = Notifier::FromEnvironment();
  EXPECT_EQ(getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(getenv("WATCHDOG_USEC"), nullptr);
  EXPECT_EQ(getenv("WATCHDOG_PID"), nullptr);
  notifier.Ready(start_);
  notifier.Turn(start_ + 1s);
  EXPECT_THAT(Heard(), ElementsAre("READY=1", "WATCHDOG=1"));
}

TEST_F(NotifyTest, AWatchdogOfAnotherProcessIsNotOurs) {
  setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  Notifier notifier = Notifier::FromEnvironment();
  notifier.Ready(start_);
  notifier.Turn(start_ + 10s);
  EXPECT_THAT(Heard(), ElementsAre("READY=1"));
}

TEST_F(NotifyTest, NobodyListensAndNonsenseHurtNobody) {
  for (const std::string& socket :
       {std::string(), std::string("relative"), std::string("/"),
        "/" + std::string(200, 'x'), dir_ + "/gone"}) {
    Notifier notifier(socket, 3s);
    notifier.Ready(start_);
    notifier.SetStatus("x");
    notifier.Turn(start_ + 10s);
    notifier.Stopping();
  }
  setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(Notifier::FromEnvironment().longest_turn(), Duration::max());
}

}  // namespace
}  // namespace lockstep
