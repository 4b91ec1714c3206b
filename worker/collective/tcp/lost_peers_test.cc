// Whom a rank names as lost, as data: those that it could not reach or whose
// process ended, and nobody where it was only told that all is over.
#include "worker/collective/lost_peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/tcp/connect.h"
#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Duration kShort = milliseconds(500);

TEST(LostPeersOfTest, StayWithTheErrorUntilTheyAreReplaced) {
  const Status plain = Unavailable("gone");
  EXPECT_THAT(LostPeersOf(plain), IsEmpty());
  const Status named = WithLostPeers(plain, {12, 0, 7});
  EXPECT_THAT(LostPeersOf(named), ElementsAre(12, 0, 7));
  const Status told = WithReason(Annotate(named, "step 3"), "PEER_LOST");
  EXPECT_THAT(LostPeersOf(told), ElementsAre(12, 0, 7));
  EXPECT_EQ(Message(told), "step 3: gone");
  EXPECT_THAT(LostPeersOf(WithLostPeers(told, {5})), ElementsAre(5));
  EXPECT_THAT(LostPeersOf(WithLostPeers(told, {})), IsEmpty());
  EXPECT_THAT(LostPeersOf(OkStatus()), IsEmpty());
}

// Three ranks that listen on the loopback.
class ConnectTest : public ::testing::Test {
 protected:
  ConnectTest() {
    signal(SIGPIPE, SIG_IGN);
    for (Listener& listener : listeners_) {
      listener = Listen("127.0.0.1").value();
    }
  }

  StatusOr<std::vector<Connection>> Connect(int rank, std::vector<int> peers,
                                            Duration time = kLong) {
    Neighbours neighbours{.rank = rank,
                          .peers = std::move(peers),
                          .places = {},
                          .secret = {"key", std::string(32, 's')}};
    for (const int peer : neighbours.peers) {
      neighbours.places.push_back({"127.0.0.1", listeners_[peer].port, "here"});
    }
    return ConnectPeers(neighbours, {}, listeners_[rank],
                        MonotonicNow() + time);
  }

  std::array<Listener, 3> listeners_;
};

TEST_F(ConnectTest, WhoNeverComesIsNamedAlone) {
  for (int silent = 0; silent < 3; ++silent) {
    // It listens, and says nothing.
    const int first = silent == 0 ? 1 : 0;
    const int second = silent == 2 ? 1 : 2;
    SpawnRanks(2, [&](int i) {
      const int rank = i == 0 ? first : second;
      std::vector<int> peers;
      for (int peer = 0; peer < 3; ++peer) {
        if (peer != rank) peers.push_back(peer);
      }
      const Status status = Connect(rank, peers, kShort).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
      EXPECT_THAT(LostPeersOf(status), ElementsAre(silent)) << status;
    });
  }
}

TEST_F(ConnectTest, WhoListensNoMoreIsNamed) {
  listeners_[1].fd.Reset();
  const Status status = Connect(0, {1, 2}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(LostPeersOf(status), ElementsAre(1));
}

// Rank 1 has all that it wants, and hears that rank 0 gave up because of 2:
// that is no end of a process.
TEST_F(ConnectTest, WhoGivesUpForAnotherIsNotLost) {
  Status first;
  StatusOr<std::vector<Connection>> second = Internal("not yet");
  SpawnRanks(2, [&](int rank) {
    if (rank == 0) {
      first = Connect(0, {1, 2}, kShort).status();
    } else {
      second = Connect(1, {0});
    }
  });
  EXPECT_THAT(LostPeersOf(first), ElementsAre(2));
  ASSERT_TRUE(second.ok()) << second.status();
  const int fd = second->front().fd.get();
  pollfd end{fd, POLLIN, 0};
  ASSERT_EQ(poll(&end, 1, 20'000), 1);
  char byte = 0;
  const ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
  const int error = got < 0 ? errno : 0;
  EXPECT_EQ(got, -1);
  EXPECT_THAT(LostPeersOf(ConnectionLost(0, error)), IsEmpty()) << error;
}

// Rank 1 of two, which ends without a goodbye once both have met.
int EndWithoutGoodbye(RendezvousStore* store) {
  auto c = FormTcp(TcpOptions(1, 2, store));
  if (!c.ok() || !collective::Run(c->get(), kBarrier, kLong).ok()) _exit(1);
  _exit(0);
}

TEST(LostPeersTest, APeerWhoseProcessEndedIsNamed) {
  const RankBoard board;
  DirectoryRendezvousStore store(board.dir());
  RankProcesses peer(1, [&](int) { return EndWithoutGoodbye(&store); });
  auto c = FormTcp(TcpOptions(0, 2, &store));
  ASSERT_TRUE(c.ok()) << c.status();
  ASSERT_TRUE(collective::Run(c->get(), kBarrier, kLong).ok());
  ASSERT_EQ(peer.Join(0, MonotonicNow() + kLong), 0);
  const Status status = collective::Run(c->get(), kBarrier, kLong);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(LostPeersOf(status), ElementsAre(1)) << status;
}

// What a communicator tells its user when it breaks.
class Told {
 public:
  BrokenFunction Function() {
    return [this](const Status& status) {
      MutexLock lock(&mu_);
      if (status_.ok()) status_ = status;
    };
  }
  Status Await() {
    EXPECT_TRUE(AwaitTrue([this] {
      MutexLock lock(&mu_);
      return !status_.ok();
    }));
    MutexLock lock(&mu_);
    return status_;
  }

 private:
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

TEST(LostPeersTest, APeerWhoseProcessEndedIsNamedWhileNothingRuns) {
  const RankBoard board;
  DirectoryRendezvousStore store(board.dir());
  RankProcesses peer(1, [&](int) { return EndWithoutGoodbye(&store); });
  Told told;
  auto c = FormTcp(TcpOptions(0, 2, &store), told.Function());
  ASSERT_TRUE(c.ok()) << c.status();
  ASSERT_TRUE(collective::Run(c->get(), kBarrier, kLong).ok());
  EXPECT_THAT(LostPeersOf(told.Await()), ElementsAre(1));
}

TEST(LostPeersTest, WhoIsToldNamesNobody) {
  std::array<Told, 3> told;
  FormedRanks ranks(3, [&](int rank, RendezvousStore* store) {
    return FormTcp(TcpOptions(rank, 3, store), told[rank].Function());
  });
  ASSERT_TRUE(ranks.status().ok()) << ranks.status();
  ranks[0]->Abort("the generation is revoked");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(LostPeersOf(told[rank].Await()), IsEmpty()) << rank;
    const Status status = collective::Run(ranks[rank], kBarrier, kLong);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(LostPeersOf(status), IsEmpty()) << status;
  }
}

TEST(LostPeersTest, WhoHearsOfItInAnOperationNamesNobody) {
  TcpRanks ranks(3);
  SpawnRanks(3, [&](int rank) {
    if (rank == 0) return ranks[0]->Abort("the generation is revoked");
    const Status status = collective::Run(ranks[rank], kBarrier, kLong);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(LostPeersOf(status), IsEmpty()) << status;
  });
}

// Rank 1 is only late: its host answers.
TEST(LostPeersTest, WhoIsLateIsNotLost) {
  TcpRanks ranks(2);
  const Status status = collective::Run(ranks[0], FloatsOf(ranks[0], 1 << 20),
                                        std::chrono::seconds(2));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(LostPeersOf(status), IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
