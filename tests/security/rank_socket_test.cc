// A rank's socket, opened by somebody else: another process without the nonce,
// another user with it, an old rank, garbage.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "worker/rank_link/client.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/server.h"
#include "worker/rank_link/testing.h"

namespace lockstep::worker::rank_link {
namespace {

using std::chrono::seconds;

constexpr uid_t kNobody = 65534;
const std::string kNonce(32, 'n');

std::string Hello(const RankKey& key, const std::string& nonce) {
  v1::RankMessage message;
  message.mutable_hello()->set_job(key.job);
  message.mutable_hello()->set_generation(key.generation);
  message.mutable_hello()->set_rank(key.rank);
  message.mutable_hello()->set_nonce(nonce);
  return message.SerializeAsString();
}

enum class Outcome : int { kWelcome, kRefusal, kClosed, kNothing };

// Sends each packet; what comes of the last. Plain system calls only: it also
// runs between fork and exit.
Outcome Say(const std::string& path, const std::vector<std::string>& packets) {
  const StatusOr<Fd> fd = ConnectPackets(path);
  if (!fd.ok()) return Outcome::kNothing;
  for (const std::string& packet : packets) {
    (void)!::send(fd->get(), packet.data(), packet.size(), MSG_NOSIGNAL);
  }
  for (;;) {
    pollfd waited{fd->get(), POLLIN, 0};
    if (::poll(&waited, 1, 30'000) != 1) return Outcome::kNothing;
    std::string packet;
    if (ReceivePacket(fd->get(), &packet) != PacketResult::kDone) {
      return Outcome::kClosed;
    }
    v1::DaemonMessage message;
    if (!message.ParseFromString(packet)) return Outcome::kNothing;
    if (message.has_refusal()) return Outcome::kRefusal;
    if (message.has_welcome() && packets.size() == 1) return Outcome::kWelcome;
  }
}

class RankSocketTest : public testing::Test {
 protected:
  RankSocketTest() {
    EXPECT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
    daemon_.Expect(kKey, kNonce, {});
  }
  StatusOr<std::unique_ptr<RankLink>> Rank() {
    return RankLink::Connect({kKey, daemon_.path(), kNonce}, {},
                             In(seconds(30)));
  }

  const RankKey kKey{"mnist", 3, 0};
  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};
};

TEST_F(RankSocketTest, OnlyTheRankIsLetIn) {
  const auto link = Rank();
  ASSERT_TRUE(link.ok()) << link.status();
  const std::string hello = Hello(kKey, kNonce);
  v1::RankMessage put;
  put.mutable_put()->set_key("k");
  put.mutable_put()->set_value("forged");
  v1::RankMessage report;
  report.mutable_report()->set_checkpoint_step(999);
  const struct {
    const char* name;
    std::vector<std::string> packets;
    Outcome outcome;
  } cases[] = {
      {"no nonce", {Hello(kKey, "")}, Outcome::kRefusal},
      {"a wrong nonce", {Hello(kKey, std::string(32, 'x'))}, Outcome::kRefusal},
      {"half of the nonce",
       {Hello(kKey, kNonce.substr(16))},
       Outcome::kRefusal},
      {"more than the nonce", {Hello(kKey, kNonce + "n")}, Outcome::kRefusal},
      {"a huge nonce",
       {Hello(kKey, std::string(60'000, 'n'))},
       Outcome::kRefusal},
      {"another rank with this nonce",
       {Hello({"mnist", 3, 1}, kNonce)},
       Outcome::kRefusal},
      {"an older generation with its nonce",
       {Hello({"mnist", 2, 0}, kNonce)},
       Outcome::kRefusal},
      {"another job", {Hello({"other", 3, 0}, kNonce)}, Outcome::kRefusal},
      {"a negative rank", {Hello({"mnist", 3, -1}, kNonce)}, Outcome::kRefusal},
      {"a put before a hello", {put.SerializeAsString()}, Outcome::kClosed},
      {"a report before a hello",
       {report.SerializeAsString()},
       Outcome::kClosed},
      {"garbage", {std::string(4096, '\xff')}, Outcome::kClosed},
      {"nothing", {""}, Outcome::kClosed},
      {"too much", {std::string(kMaxPacketBytes + 1, 'x')}, Outcome::kClosed},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Say(daemon_.path(), c.packets), c.outcome) << c.name;
  }
  // A socket that is closed with something unread is reset: the refusal may
  // not be read any more.
  const Outcome more =
      Say(daemon_.path(), {Hello(kKey, "x"), put.SerializeAsString()});
  EXPECT_TRUE(more == Outcome::kRefusal || more == Outcome::kClosed);
  // None of it reached the rank's own connection.
  EXPECT_TRUE((*link)->Put("still", "works").ok());
  EXPECT_EQ(*(*link)->Get("still", In(seconds(5))), "works");
  daemon_.With([&](RankLinkServer* server) {
    EXPECT_EQ(daemon_.disconnects, 0);
    EXPECT_EQ(daemon_.reports.size(), 0u);
    EXPECT_EQ(server->pid(kKey), ::getpid());
  });
}

// A nonce opens the door once for each process that is the rank; of a
// generation that is over it opens nothing.
TEST_F(RankSocketTest, ANonceEndsWithItsGeneration) {
  ASSERT_TRUE(Rank().ok());
  daemon_.With([&](RankLinkServer* server) { server->Forget(kKey); });
  EXPECT_EQ(Say(daemon_.path(), {Hello(kKey, kNonce)}), Outcome::kRefusal);
  daemon_.Expect({"mnist", 4, 0}, std::string(32, 'm'), {});
  EXPECT_EQ(Say(daemon_.path(), {Hello({"mnist", 4, 0}, kNonce)}),
            Outcome::kRefusal);
  EXPECT_EQ(Say(daemon_.path(), {Hello({"mnist", 4, 0}, std::string(32, 'm'))}),
            Outcome::kWelcome);
}

class OtherUserTest : public RankSocketTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  }
  // What `act` gives in a process of another user.
  static int AsNobody(const std::function<int()>& act) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(kNobody, kNobody, kNobody) != 0 ||
          ::setresuid(kNobody, kNobody, kNobody) != 0) {
        ::_exit(100);
      }
      ::_exit(act());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
  }
};

TEST_F(OtherUserTest, HasTheNonceAndIsRefused) {
  EXPECT_EQ(Say(daemon_.path(), {Hello(kKey, kNonce)}), Outcome::kWelcome);
  const std::string path = daemon_.path();
  const std::string hello = Hello(kKey, kNonce);
  EXPECT_EQ(AsNobody([&] { return static_cast<int>(Say(path, {hello})); }),
            static_cast<int>(Outcome::kRefusal));
}

// Strangers of another user who connect and say nothing do not take the places
// that ranks need for their greeting.
TEST_F(OtherUserTest, CannotCrowdRanksOut) {
  const std::string path = daemon_.path();
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(100);
    std::vector<Fd> crowd;
    for (int i = 0; i < 200; ++i) {
      StatusOr<Fd> fd = ConnectPackets(path);
      if (fd.ok()) crowd.push_back(*std::move(fd));
    }
    char c = 'x';
    (void)!::write(ready[1], &c, 1);
    (void)!::read(done[0], &c, 1);
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  // At once, not after the strangers' five seconds.
  const auto link = RankLink::Connect({kKey, path, kNonce}, {},
                                      In(std::chrono::milliseconds(4500)));
  EXPECT_TRUE(link.ok()) << link.status();
  ASSERT_EQ(::write(done[1], &c, 1), 1);
  ::waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
}

}  // namespace
}  // namespace lockstep::worker::rank_link
