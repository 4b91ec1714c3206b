// The worker daemon: what becomes of ranks while it is alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/os/process.h"
#include "worker/agent/agent.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/fake_coordinator.h"
#include "worker/task/exit_record.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;

class AgentFenceTest : public AgentTest {
 protected:
  void LaunchWith(const Fence& fence, const std::string& script) {
    const std::vector<std::string> argv = {"/bin/sh", "-c", script};
    Assignment order = Order(Goal::kPrepare, argv);
    order.spec->fence = fence;
    coordinator_.Send(order);
    ASSERT_TRUE(Reaches(GangPhase::kPrepared));
    EXPECT_EQ(Reported().fence, fence) << "it promises";
    order = Order(Goal::kLaunch, argv);
    order.spec->fence = fence;
    coordinator_.Send(order);
    ASSERT_TRUE(AllAre(RankState::kStarted));
    rank_ = static_cast<pid_t>(Reported().ranks[0].pid);
  }
  bool Lives() const { return kill(rank_, 0) == 0; }
  // When the rank ends; absent: it lives after `time`.
  std::optional<Duration> EndsWithin(Duration time) const {
    const MonoTime begun = MonotonicNow();
    while (MonotonicNow() - begun < time) {
      if (!Lives()) return MonotonicNow() - begun;
      poll(nullptr, 0, 10);
    }
    return std::nullopt;
  }
  // What it says of its rank once the coordinator is there again.
  ExitStatus ExitAfterOutage() {
    const auto over = [this] {
      const auto& gangs = coordinator_.registration.gangs;
      return !gangs.empty() && gangs[0].phase == GangPhase::kStopped;
    };
    EXPECT_TRUE(coordinator_.Eventually(over));
    return coordinator_.Locked([&] {
      return over() ? *coordinator_.registration.gangs[0].ranks[0].exit
                    : ExitStatus();
    });
  }
  // A daemon that does not reach the coordinator.
  void StartDaemonAlone() {
    daemon_ = std::make_unique<Daemon>(config_, coordinator_.address(),
                                       gpus_.get(), files_);
  }
  pid_t rank_ = 0;
};

TEST_F(AgentFenceTest, ItsRanksEndInTimeAndItSaysWhy) {
  LaunchWith({4s, false}, "trap 'exit 0' TERM; while :; do sleep 0.02; done");
  coordinator_.Stop();
  const auto after = EndsWithin(15s);
  ASSERT_TRUE(after);
  EXPECT_LE(*after, 4s);
  ASSERT_TRUE(coordinator_.Start().ok());
  const ExitStatus exit = ExitAfterOutage();
  EXPECT_EQ(exit.reason, Reason::kNodeLost);
  EXPECT_TRUE(exit.victim);
  EXPECT_FALSE(exit.ok()) << "it exits with 0 because it is told to";
  EXPECT_EQ(exit.message, task::kFencedMessage);
}

TEST_F(AgentFenceTest, WhileTheCoordinatorAnswersTheyGoOn) {
  LaunchWith({3s, true}, "exec sleep 1000");
  const MonoTime until = MonotonicNow() + 5s;
  // Each beat is an answer that it waits for.
  while (MonotonicNow() < until) {
    const size_t beats =
        coordinator_.Locked([&] { return coordinator_.beats.size(); });
    ASSERT_TRUE(coordinator_.Eventually(
        [&] { return coordinator_.beats.size() > beats; }));
  }
  EXPECT_TRUE(Lives());
}

TEST_F(AgentFenceTest, ADaemonThatDiesOrStopsEndsThem) {
  LaunchWith({4s, true}, "exec sleep 1000");
  daemon_.reset();
  const auto after = EndsWithin(15s);
  ASSERT_TRUE(after);
  EXPECT_LE(*after, 4s);
  StartDaemon();
  ASSERT_TRUE(Reaches(GangPhase::kStopped));
  EXPECT_EQ(Reported().ranks[0].exit->reason, Reason::kNodeLost);
}

TEST_F(AgentFenceTest, TheNextDaemonRenewsWhatItAdopts) {
  LaunchWith({5s, true}, "exec sleep 1000");
  StartAgain();
  const MonoTime until = MonotonicNow() + 7s;
  while (MonotonicNow() < until) {
    const size_t beats =
        coordinator_.Locked([&] { return coordinator_.beats.size(); });
    ASSERT_TRUE(coordinator_.Eventually(
        [&] { return coordinator_.beats.size() > beats; }));
  }
  EXPECT_TRUE(Lives());
  EXPECT_EQ(Reported().fence, (Fence{5s, true}));
}

// The neighbour is a daemon of another node. Both lose the coordinator.
TEST_F(AgentFenceTest, WhileANeighbourAnswersTheyGoOn) {
  SystemClock clock;
  auto loop = EventLoop::Create(&clock);
  ASSERT_TRUE(loop.ok());
  auto listener = ProbeListener::Listen("127.0.0.1");
  ASSERT_TRUE(listener.ok());
  auto neighbour = std::make_unique<ContactServer>("node-b", loop->get());
  ASSERT_TRUE((*loop)
                  ->Watch((*listener)->fd(),
                          [&] {
                            (*listener)->Dispatch(
                                [&](Fd fd) { neighbour->Take(std::move(fd)); });
                          })
                  .ok());
  std::thread thread([&] { (*loop)->Run(); });
  coordinator_.Send(
      NeighbourList{{{"node-b", "127.0.0.1", (*listener)->port()}}});
  LaunchWith({5s, true}, "exec sleep 1000");
  coordinator_.Stop();
  EXPECT_FALSE(EndsWithin(8s)) << "the coordinator is merely away";
  // The next daemon knows it, too.
  daemon_.reset();
  StartDaemonAlone();
  EXPECT_FALSE(EndsWithin(6s));
  (*loop)->Stop();
  thread.join();
  EXPECT_TRUE(EndsWithin(6s)) << "nor is a neighbour there any more";
  neighbour.reset();
  ASSERT_TRUE(coordinator_.Start().ok());
  EXPECT_EQ(ExitAfterOutage().reason, Reason::kNodeLost);
}

}  // namespace
}  // namespace lockstep::worker::agent
