// Peers of the tcp backend that die while forming, and that nothing is left of
// many generations. Of those that die or freeze later, see
// worker/collective/abort_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <thread>

#include "worker/collective/lost_peers.h"
#include "worker/collective/tcp/tcp_test_util.h"

namespace lockstep::worker::collective::tcp {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TcpProcessTest, FiveHundredGenerationsLeaveNothingBehind) {
  const RankBoard board;
  RankProcesses ranks(2, [&](int rank) {
    int fds = 0;
    int threads = 0;
    size_t pages = 0;
    for (int generation = 0; generation < (kSanitized ? 100 : 500);
         ++generation) {
      const std::string dir = fmt::format("{}/{}", board.dir(), generation);
      std::filesystem::create_directories(dir);
      DirectoryRendezvousStore store(dir);
      {
        auto c = FormTcp(TcpOptions(rank, 2, &store));
        if (!c.ok()) return 100;
        const Operation reduce = FloatsOf(c->get(), 1000);
        // Every other generation ends by an abort, which may meet the other
        // rank at the end of the operation.
        const bool aborts = generation % 2 == 1;
        if (!collective::Run(c->get(), reduce, kLong).ok() && !aborts)
          return 101;
        if (aborts) (*c)->Abort("next");
      }
      if (generation == 50) {
        fds = CountEntries("/proc/self/fd");
        threads = CountEntries("/proc/self/task");
        pages = CountResidentPages();
      }
    }
    if (CountEntries("/proc/self/fd") != fds) return 102;
    // 450 generations: 9 KiB each. A sanitizer keeps what was freed.
    if (!kSanitized && CountResidentPages() > pages + 1024) return 104;
    // A thread that was joined may still be listed for a moment.
    const MonoTime deadline = MonotonicNow() + seconds(5);
    while (CountEntries("/proc/self/task") != threads &&
           MonotonicNow() < deadline) {
      std::this_thread::yield();
    }
    return CountEntries("/proc/self/task") == threads ? 0 : 103;
  });
  const MonoTime deadline = MonotonicNow() + seconds(100);
  EXPECT_EQ(ranks.Join(0, deadline), 0);
  EXPECT_EQ(ranks.Join(1, deadline), 0);
}

// Forming fails, and says which rank, when a peer dies after it has published
// its address.
TEST(TcpProcessTest, PeerThatDiesWhileFormingIsNamed) {
  const RankBoard board;
  DirectoryRendezvousStore store(board.dir());
  {
    RankProcesses ranks(1, [&](int) {
      auto options = TcpOptions(1, 2, &store);
      options.forming_deadline = MonotonicNow();
      return FormTcp(options).ok() ? 1 : 0;
    });
    ASSERT_EQ(ranks.Join(0, MonotonicNow() + kLong), 0);
  }
  const MonoTime start = MonotonicNow();
  const Status status = FormTcp(TcpOptions(0, 2, &store)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(Message(status), HasSubstr("rank 1"));
  EXPECT_THAT(LostPeersOf(status), ElementsAre(1));
  EXPECT_LT(MonotonicNow() - start, kSoon);
}

}  // namespace
}  // namespace lockstep::worker::collective::tcp
