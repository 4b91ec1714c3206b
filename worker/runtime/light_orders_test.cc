// The orders of several ranks over real links to one daemon.
#include "worker/runtime/light_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "worker/rank_link/testing.h"
#include "worker/runtime/order_text.h"
#include "worker/runtime/session_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using rank_link::RankKey;
using rank_link::RankLink;
using rank_link::RankLinkServer;
using rank_link::TempDir;
using rank_link::TestDaemon;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LightOrdersTest : public ::testing::Test {
 protected:
  struct Member {
    LightOrders orders;
    std::unique_ptr<RankLink> link;  // Ends before the orders.
    std::set<int64_t> due;
    std::set<int64_t> stop;
    Status failed;
  };

  static RankKey Key(int rank) { return {"mnist", 3, rank}; }
  void Join(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankWelcome welcome;
      welcome.set_program(true);
      welcome.set_rank(rank);
      welcome.set_world_size(ranks);
      daemon_.Expect(Key(rank), RankNonce(rank), welcome);
      auto member = std::make_unique<Member>();
      rank_link::RankIdentity identity;
      identity.key = Key(rank);
      identity.path = daemon_.path();
      identity.nonce = RankNonce(rank);
      identity.instance = "i";
      auto link = RankLink::Connect(identity, member->orders.Callbacks(),
                                    rank_link::In(seconds(30)));
      ASSERT_TRUE(link.ok()) << link.status();
      member->link = *std::move(link);
      member->orders.Start(
          member->link.get(),
          {.rank = rank, .world_size = ranks, .token = std::to_string(rank)});
      members_.push_back(std::move(member));
    }
  }
  void Direct(uint32_t id, v1::RankDirective::Kind kind) {
    daemon_.With([&](RankLinkServer* server) {
      server->SendDirective(Key(0), id, kind);
    });
  }
  // All ranks make steps until `done`, together, as all-reduces make them.
  void Steps(const std::function<bool()>& done) {
    const MonoTime deadline = rank_link::In(seconds(60));
    std::vector<std::thread> threads;
    std::atomic<int64_t> arrived{0};
    std::atomic<int64_t> last{INT64_MAX};
    for (size_t i = 0; i < members_.size(); ++i) {
      threads.emplace_back([&, i] {
        Member& member = *members_[i];
        const auto count = static_cast<int64_t>(members_.size());
        for (int64_t step = 1; step <= last; ++step) {
          ++arrived;
          while (arrived < step * count) std::this_thread::yield();
          member.orders.OnStep(first_ + step);
          const auto due = member.orders.Ask(OrderKind::kCheckpoint);
          if (due.ok() && *due) member.due.insert(first_ + step);
          const auto stop = member.orders.Ask(OrderKind::kStop);
          if (stop.ok() && *stop) member.stop.insert(first_ + step);
          if (!due.ok()) member.failed = due.status();
          if (!stop.ok()) member.failed = stop.status();
          if (i == 0 && last == INT64_MAX) {
            if (member.due.contains(first_ + step)) {
              member.orders.OnSaved(first_ + step);
            }
            if (done() || MonotonicNow() > deadline) last = step + 2;
          }
          std::this_thread::sleep_for(milliseconds(2));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    first_ += last;
    EXPECT_LT(MonotonicNow(), deadline);
    for (const auto& member : members_) {
      EXPECT_EQ(member->due, members_[0]->due);
      EXPECT_EQ(member->stop, members_[0]->stop);
      EXPECT_TRUE(member->failed.ok()) << member->failed;
    }
  }
  uint32_t Done() {
    uint32_t done = 0;
    daemon_.With([&](RankLinkServer*) {
      for (const auto& [key, report] : daemon_.reports) {
        done = std::max(done, report.directive_done());
      }
    });
    return done;
  }

  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};
  std::vector<std::unique_ptr<Member>> members_;
  int64_t first_ = 0;
};

TEST_F(LightOrdersTest, AllRanksSaveAndStopAtTheSameStep) {
  Join(3);
  Direct(1, v1::RankDirective::CHECKPOINT);
  Steps([this] { return members_[0]->due.size() == 1; });
  EXPECT_EQ(members_[0]->due.size(), 1u);
  EXPECT_TRUE(daemon_.WaitFor([this] {
    return !daemon_.reports.empty() &&
           daemon_.reports.back().second.directive_done() == 1;
  }));
  Direct(2, v1::RankDirective::STOP);
  Steps([this] { return !members_[0]->stop.empty(); });
  EXPECT_EQ(members_[0]->stop.size(), 3u) << "and it stays";
  EXPECT_EQ(members_[0]->due.size(), 2u);
  EXPECT_EQ(Done(), 2u);
}

TEST_F(LightOrdersTest, ANewDaemonDoesNotChangeAnything) {
  Join(2);
  Direct(1, v1::RankDirective::CHECKPOINT);
  // While the proposal is under way, most likely.
  Steps([this, left = 30]() mutable {
    if (--left == 0) {
      daemon_.Stop();
      daemon_.Start();
    }
    return !members_[0]->due.empty();
  });
  EXPECT_EQ(members_[0]->due.size(), 1u);
}

// Rank 1 has promised not to pass step 5 before it knows rank 0's decision.
class WaitingTest : public LightOrdersTest {
 protected:
  WaitingTest() {
    Join(2);
    RankLink& rank0 = *members_[0]->link;
    EXPECT_TRUE(rank0.Put(ProposalKey(1), "x checkpoint 5 1").ok());
    EXPECT_TRUE(rank0.Get(AnswerKey(1, 1), rank_link::In(seconds(30))).ok());
    orders_ = &members_[1]->orders;
    orders_->OnStep(4);
    EXPECT_FALSE(*orders_->Ask(OrderKind::kCheckpoint));
    orders_->OnStep(5);
    EXPECT_FALSE(*orders_->Ask(OrderKind::kStop)) << "is not in question";
    asking_ = std::thread([this] {
      answer_ = orders_->Ask(OrderKind::kCheckpoint);
      answered_ = true;
    });
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_FALSE(answered_);
  }
  StatusOr<bool> Answer() {
    asking_.join();
    return answer_;
  }

  LightOrders* orders_ = nullptr;
  std::thread asking_;
  StatusOr<bool> answer_ = false;
  std::atomic<bool> answered_ = false;
};

TEST_F(WaitingTest, TheDecisionEndsIt) {
  EXPECT_TRUE(members_[0]->link->Put(DecisionKey(1), "x go").ok());
  const StatusOr<bool> answer = Answer();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(*answer);
}

TEST_F(WaitingTest, ADroppedProposalEndsIt) {
  EXPECT_TRUE(members_[0]->link->Put(DecisionKey(1), "x drop").ok());
  const StatusOr<bool> answer = Answer();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(*answer);
}

TEST_F(WaitingTest, TheEndOfTheGenerationEndsIt) {
  daemon_.With([](RankLinkServer* server) {
    server->SendAbort(Key(1), "node b is lost");
  });
  const StatusOr<bool> answer = Answer();
  EXPECT_EQ(answer.status().code(), StatusCode::kAborted);
  EXPECT_THAT(Message(answer.status()), ::testing::HasSubstr("node b is lost"));
}

TEST_F(WaitingTest, ClosingEndsIt) {
  orders_->Close();
  EXPECT_EQ(Answer().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(*orders_->Ask(OrderKind::kCheckpoint));
}

TEST_F(LightOrdersTest, AQuestionIsCheap) {
  Join(1);
  LightOrders& orders = members_[0]->orders;
  orders.OnStep(1);
  constexpr int kQuestions = 100000;
  Duration best = seconds(1000);
  for (int round = 0; round < 5; ++round) {
    const MonoTime begin = MonotonicNow();
    for (int i = 0; i < kQuestions; ++i) {
      ASSERT_FALSE(*orders.Ask(OrderKind::kCheckpoint));
    }
    best = std::min(best, MonotonicNow() - begin);
  }
  RecordProperty("nanoseconds", static_cast<int>(best.count() / kQuestions));
  // Far below what a system call on a loaded machine may take.
  EXPECT_LT(best / kQuestions, std::chrono::microseconds(20));
}

}  // namespace
}  // namespace lockstep::worker::runtime
