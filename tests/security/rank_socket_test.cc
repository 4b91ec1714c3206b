// A rank's socket refuses what is not that rank: a process without the nonce,
// another user with it, an old rank, garbage.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
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

// Sends each packet and returns what came of the last.
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
  // Calls `act` on a thread whose user is another one. The system calls change
  // the calling thread alone; libc's functions would change all threads. (A
  // forked process that allocates can wait for ever: a lock of the allocator
  // may be held by a thread that does not exist there.)
  static void AsNobody(const std::function<void()>& act) {
    std::thread([&] {
      ASSERT_EQ(::syscall(SYS_setresgid, kNobody, kNobody, kNobody), 0);
      ASSERT_EQ(::syscall(SYS_setresuid, kNobody, kNobody, kNobody), 0);
      act();
    }).join();
  }
};

TEST_F(OtherUserTest, HasTheNonceAndIsRefused) {
  EXPECT_EQ(Say(daemon_.path(), {Hello(kKey, kNonce)}), Outcome::kWelcome);
  AsNobody([&] {
    EXPECT_EQ(Say(daemon_.path(), {Hello(kKey, kNonce)}), Outcome::kRefusal);
  });
}

// Another user's connections that never send a hello do not take the places
// that ranks need for theirs.
TEST_F(OtherUserTest, CannotCrowdRanksOut) {
  std::vector<Fd> crowd;
  AsNobody([&] {
    for (int i = 0; i < 200; ++i) {
      StatusOr<Fd> fd = ConnectPackets(daemon_.path());
      if (fd.ok()) crowd.push_back(*std::move(fd));
    }
  });
  EXPECT_FALSE(crowd.empty());
  // At once, not after the five seconds that a connection has for its hello.
  const auto link = RankLink::Connect({kKey, daemon_.path(), kNonce}, {},
                                      In(std::chrono::milliseconds(4500)));
  EXPECT_TRUE(link.ok()) << link.status();
}

}  // namespace
}  // namespace lockstep::worker::rank_link
