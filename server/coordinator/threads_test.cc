// Clients, daemons, watchers and the ticker at once: for the thread sanitizer,
// and for deadlocks.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/coordinator/coordinator_fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST_F(CoordinatorTest, EverybodyAtOnce) {
  constexpr int kClients = 3;
  constexpr int kJobs = 15;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;

  threads.emplace_back([&] {
    while (!stop) {
      clock_.Advance(20ms);
      coordinator_->Tick();
      (void)coordinator_->queries()->Stats();
      std::this_thread::yield();
    }
  });
  for (FakeDaemon* daemon : all_) {
    threads.emplace_back([&, daemon] {
      EXPECT_TRUE(daemon->Connect(coordinator_.get()).ok());
      for (int round = 0; !stop; ++round) {
        if (round % 50 == 49) {
          EXPECT_TRUE(daemon->Connect(coordinator_.get()).ok());
        }
        (void)daemon->Beat();
        daemon->Pump();
        for (auto& [key, gang] : daemon->gangs) {
          if (gang.assignment.goal != Goal::kGo) continue;
          for (const RankStatus& rank : gang.status.ranks) {
            if (!rank.exit) daemon->Exit(key.first, rank.rank, ExitCode(0));
          }
        }
        std::this_thread::yield();
      }
    });
  }
  std::atomic<int> finals = 0;
  threads.emplace_back([&] {
    int64_t version = 0;
    while (!stop) {
      const auto news = WatchHub::Watch(hub_.get(), "", version, [] {}).Take();
      if (!news.ok()) break;
      for (const WatchHub::Change& change : news->changes) {
        if (IsFinal(change.job->state)) ++finals;
      }
      version = news->version;
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < kJobs; ++i) {
        const JobName name = fmt::format("c{}-{}", client, i);
        EXPECT_TRUE(Submit(NativeSpec(name, 2)).ok());
        if (i % 3 == 0) {
          EXPECT_TRUE(Cancel(name).ok());
        }
        (void)coordinator_->queries()->ListJobs();
        (void)coordinator_->queries()->ListNodes();
        (void)coordinator_->queries()->GetJob(name);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const MonoTime deadline = MonotonicNow() + 120s;
  while (finals < kClients * kJobs && MonotonicNow() < deadline) {
    std::this_thread::yield();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(finals, kClients * kJobs);
  for (const JobSnapshot& job : coordinator_->queries()->ListJobs()) {
    EXPECT_TRUE(IsFinal(job.job->state)) << job.job->spec.name;
  }
}

}  // namespace
}  // namespace lockstep::server
