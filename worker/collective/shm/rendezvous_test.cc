// Forming: who is let in, and what is shared with whom.
#include "worker/collective/shm/rendezvous.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "worker/collective/handshake.h"
#include "worker/collective/lost_peers.h"
#include "worker/collective/shm/handshake.h"
#include "worker/collective/shm/shm_test_util.h"

namespace lockstep::worker::collective::shm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Connects to the socket of a rank, as anybody of its user can.
Fd ConnectTo(RendezvousStore* store, int rank) {
  const std::string value =
      store->Get(fmt::format("shm/{}", rank), MonotonicNow() + kLong).value();
  const std::string name = value.substr(value.rfind(' ') + 1);
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                    offsetof(sockaddr_un, sun_path) + 1 + name.size()),
            0);
  return fd;
}

TEST(RendezvousTest, AnotherKeyIsNamedOnBothSides) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  const MonoTime start = MonotonicNow();
  SpawnRanks(2, [&](int rank) {
    CommunicatorOptions options = ShmOptions(rank, 2, &store);
    if (rank == 1) options.key = "another key";
    const Status status = FormShm(options).status();
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status;
    EXPECT_EQ(ReasonOf(status), kReasonWrongJobKey);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                       HasSubstr("another key")));
  });
  EXPECT_LT(MonotonicNow() - start, seconds(4));
}

// Both have published where they are; one is not there, one never comes.
TEST(RendezvousTest, APeerThatCannotBeReachedIsNamedAsLost) {
  signal(SIGPIPE, SIG_IGN);
  SpawnRanks(2, [](int rank) {
    MapRendezvousStore store;
    ASSERT_TRUE(store
                    .Put(fmt::format("shm/{}", 1 - rank),
                         "LSHM1 2 lockstep-" + std::string(32, 'a'))
                    .ok());
    const Status status = FormShm(ShmOptions(rank, 2, &store)).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(LostPeersOf(status), ElementsAre(1 - rank)) << status;
  });
}

TEST(RendezvousTest, StrangersCostNoRankAnything) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  const MonoTime start = MonotonicNow();
  std::vector<Fd> strangers;
  SpawnRanks(2, [&](int rank) {
    if (rank == 1) {
      // One says nothing, one rubbish, one hangs up, one greets with no proof,
      // one claims to be the rank that it talks to.
      strangers.push_back(ConnectTo(&store, 0));
      strangers.push_back(ConnectTo(&store, 0));
      (void)!send(strangers.back().get(), "GET / HTTP/1.1", 14, 0);
      ConnectTo(&store, 0);
      strangers.push_back(ConnectTo(&store, 0));
      const Hello one = MakeHello(1, 2, size_t{1} << 30);
      (void)!send(strangers.back().get(), &one, sizeof(one), 0);
      strangers.push_back(ConnectTo(&store, 0));
      const Hello zero = MakeHello(0, 2, size_t{1} << 30);
      (void)!send(strangers.back().get(), &zero, sizeof(zero), 0);
    }
    auto c = FormShm(ShmOptions(rank, 2, &store));
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_TRUE(
        collective::Run(c->get(), {.kind = CollectiveKind::kBarrier}, kLong)
            .ok());
  });
  EXPECT_LT(MonotonicNow() - start, seconds(4));
}

// Plays rank 1 with the right key, but gives `file` as its memory.
Status FormWithOneThatGives(int file, size_t bytes) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  Status result;
  SpawnRanks(2, [&](int rank) {
    const CommunicatorOptions options = ShmOptions(0, 2, &store);
    if (rank == 0) {
      result = FormShm(options).status();
      return;
    }
    ASSERT_TRUE(
        store.Put("shm/1", "LSHM1 2 lockstep-" + std::string(32, 'a')).ok());
    const Fd fd = ConnectTo(&store, 0);
    const Hello hello = MakeHello(1, 2, bytes);
    ASSERT_TRUE(SendMessage(fd.get(), &hello, sizeof(hello)).ok());
    Answer answer{};
    Fd got;
    bool nothing = true;
    while (nothing) {
      ASSERT_TRUE(
          ReceiveMessage(fd.get(), &answer, sizeof(answer), &got, &nothing)
              .ok());
    }
    EXPECT_FALSE(got) << "memory before a proof";
    EXPECT_TRUE(EqualMacs(
        answer.proof, Prove(options.key, Role::kAccepts, hello, answer.hello)));
    const Proof proof =
        Prove(options.key, Role::kConnects, hello, answer.hello);
    ASSERT_TRUE(SendMessage(fd.get(), proof.data(), proof.size(), file).ok());
    char word;
    (void)!recv(fd.get(), &word, 1, 0);
    (void)!recv(fd.get(), &word, 1, 0);  // until rank 0 is through
  });
  return result;
}

TEST(RendezvousTest, MemoryThatCouldShrinkIsRefused) {
  constexpr size_t kBytes = size_t{64} << 20;
  const Fd open_file(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open_file.get(), kBytes), 0);
  const Status unsealed = FormWithOneThatGives(open_file.get(), kBytes);
  EXPECT_EQ(unsealed.code(), StatusCode::kFailedPrecondition) << unsealed;
  EXPECT_THAT(Message(unsealed),
              AllOf(HasSubstr("rank 1"), HasSubstr("not sealed")));

  ASSERT_EQ(fcntl(open_file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW),
            0);
  const Status other_size = FormWithOneThatGives(open_file.get(), 2 * kBytes);
  EXPECT_EQ(other_size.code(), StatusCode::kFailedPrecondition) << other_size;
  EXPECT_THAT(Message(other_size), HasSubstr("bytes"));

  const Status none = FormWithOneThatGives(-1, kBytes);
  EXPECT_THAT(Message(none), HasSubstr("no shared memory"));
}

TEST(RendezvousTest, OurOwnMemoryIsSealedAndUnlinked) {
  Fd file;
  auto segment = Segment::Create(2, &file);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_NE(ftruncate(file.get(), 4096), 0);
  EXPECT_NE(fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_EQ(fcntl(file.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_TRUE(segment->HasRange(kArenaPlace, 100, 4));
  EXPECT_FALSE(segment->HasRange(kArenaPlace - 4, 100, 4));
  EXPECT_FALSE(segment->HasRange(kArenaPlace + 2, 100, 4));
  EXPECT_FALSE(segment->HasRange(segment->bytes() - 96, 100, 4));
  EXPECT_FALSE(segment->HasRange(UINT64_MAX - 7, 100, 4));
  EXPECT_FALSE(segment->HasRange(kArenaPlace, SIZE_MAX, 4));
}

TEST(RendezvousTest, MissingRanksAreNamedAtTheDeadline) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  // Ranks 1 and 3 of four never come.
  SpawnRanks(2, [&](int i) {
    auto options = ShmOptions(2 * i, 4, &store);
    const MonoTime start = MonotonicNow();
    options.forming_deadline = start + seconds(1);
    const Status status = FormShm(options).status();
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Message(status),
                AllOf(HasSubstr("job test g1"), HasSubstr("rank 1, 3 ")));
    EXPECT_LT(MonotonicNow() - start, seconds(3));
  });
}

TEST(RendezvousTest, WrongWordsInTheStoreAreAnError) {
  signal(SIGPIPE, SIG_IGN);
  for (const char* value : {"", "LSHM1 3 lockstep-x", "LSHM1 2 short"}) {
    MapRendezvousStore store;
    ASSERT_TRUE(store.Put("shm/1", value).ok());
    const Status status = FormShm(ShmOptions(0, 2, &store)).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  }
}

TEST(RendezvousTest, RefusesWhatCannotWork) {
  MapRendezvousStore store;
  const auto expect = [&](int rank, int size, RendezvousStore* where,
                          const char* text) {
    const Status status = FormShm(ShmOptions(rank, size, where)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), HasSubstr(text));
  };
  expect(2, 2, &store, "rank 2");
  expect(-1, 2, &store, "rank -1");
  expect(0, 2, nullptr, "rendezvous");
  expect(0, 500, &store, "128");
}

class DeathTest : public ShmProcessTest {};

TEST_F(DeathTest, ARankThatDiesWhileFormingIsNamed) {
  DirectoryRendezvousStore store(board_.dir());
  // A higher one would have connected, a lower one would have answered.
  for (const int dead : {0, 1}) {
    const std::string dir = fmt::format("{}/{}", board_.dir(), dead);
    std::filesystem::create_directories(dir);
    DirectoryRendezvousStore its_store(dir);
    {
      RankProcesses ranks(1, [&](int) {
        auto options = ShmOptions(dead, 2, &its_store);
        options.forming_deadline = MonotonicNow();
        return FormShm(options).ok() ? 1 : 0;
      });
      ASSERT_EQ(ranks.Join(0, MonotonicNow() + kLong), 0);
    }
    const MonoTime start = MonotonicNow();
    const Status status = FormShm(ShmOptions(1 - dead, 2, &its_store)).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr(fmt::format("rank {}", dead)));
    EXPECT_LT(MonotonicNow() - start, seconds(8));
  }
}

// What a rank does not have any more once it was killed.
TEST_F(DeathTest, AKilledRankLeavesNoNameBehind) {
  const int before = CountEntries("/dev/shm");
  RankProcesses ranks(2, [&](int rank) {
    DirectoryRendezvousStore store(board_.dir());
    auto c = FormShm(ShmOptions(rank, 2, &store));
    if (!c.ok()) return 100;
    (void)(*c)->Allocate(1 << 20);
    board_->steps[rank] = 1;
    pause();
    return 0;
  });
  ASSERT_TRUE(
      AwaitTrue([&] { return board_->steps[0] + board_->steps[1] == 2; }));
  EXPECT_EQ(CountEntries("/dev/shm"), before);
  ranks.Signal(0, SIGKILL);
  ranks.Signal(1, SIGKILL);
  EXPECT_EQ(ranks.Join(0, MonotonicNow() + kLong), 128 + SIGKILL);
  EXPECT_EQ(ranks.Join(1, MonotonicNow() + kLong), 128 + SIGKILL);
  EXPECT_EQ(CountEntries("/dev/shm"), before);
  std::ifstream sockets("/proc/net/unix");
  const std::string all((std::istreambuf_iterator<char>(sockets)),
                        std::istreambuf_iterator<char>());
  DirectoryRendezvousStore store(board_.dir());
  const std::string value = store.Get("shm/0", MonotonicNow() + kLong).value();
  EXPECT_EQ(all.find(value.substr(value.rfind(' ') + 1)), std::string::npos);
}

}  // namespace
}  // namespace lockstep::worker::collective::shm
