#include "worker/runtime/order_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/runtime/order_text.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The coordinator and the daemons of a few ranks: keys are written once.
// Messages may be late and in any order. A rank whose link is broken sends and
// receives nothing until it is whole again, and then repeats all, as links do.
class Cluster {
 public:
  Cluster(int ranks, unsigned seed, Duration latency)
      : random_(seed), latency_(latency) {
    for (int i = 0; i < ranks; ++i) {
      ranks_.push_back(std::make_unique<Rank>(Rank{
          .book = OrderBook({i, ranks, "t" + std::to_string(i)}),
      }));
    }
  }

  void Join(int rank) {
    Do(rank, [](OrderBook* book, OrderOutput* out) { book->Start(out); });
  }
  void JoinAll() {
    for (int i = 0; i < size(); ++i) Join(i);
  }
  // Another process of the rank.
  void Rejoin(int rank) {
    ranks_[rank] = std::make_unique<Rank>(Rank{
        .book = OrderBook({rank, size(), "u" + std::to_string(++joins_)})});
    Join(rank);
  }
  void Direct(uint32_t id, OrderKind kind) {
    Do(0, [&](OrderBook* book, OrderOutput* out) {
      book->OnDirective(id, kind, now_, out);
    });
  }
  void Step(int rank, int64_t step) {
    ranks_[rank]->step = step;
    Do(rank, [&](OrderBook* book, OrderOutput* out) {
      book->OnStep(step, now_, out);
    });
  }
  void StepAll(int64_t step) {
    for (int i = 0; i < size(); ++i) Step(i, step);
  }
  OrderAnswer Ask(int rank, OrderKind question) {
    OrderAnswer answer = OrderAnswer::kNo;
    Do(rank, [&](OrderBook* book, OrderOutput* out) {
      answer = book->Ask(question, now_, out);
    });
    return answer;
  }
  void AskAll() {
    for (int i = 0; i < size(); ++i) {
      (void)Ask(i, OrderKind::kCheckpoint);
      (void)Ask(i, OrderKind::kStop);
    }
  }
  void Saved(int64_t step) {
    Do(0, [&](OrderBook* book, OrderOutput* out) { book->OnSaved(step, out); });
  }
  void Close(int rank) {
    Do(rank, [](OrderBook* book, OrderOutput* out) { book->Close(out); });
  }
  void Break(int rank) { ranks_[rank]->broken = true; }
  void Mend(int rank) {
    Rank& r = *ranks_[rank];
    r.broken = false;
    for (const auto& [key, value] : r.puts) {
      Post(rank, {OrderMessage::Kind::kPut, key, value});
    }
    for (const std::string& key : r.asked) {
      Post(rank, {OrderMessage::Kind::kAsk, key});
    }
  }

  // Lets time pass, and what is under way arrive.
  void Pass(Duration duration) {
    const MonoTime end = now_ + duration;
    while (true) {
      const auto next = std::min_element(
          posts_.begin(), posts_.end(),
          [](const Posted& a, const Posted& b) { return a.at < b.at; });
      if (next == posts_.end() || next->at > end) break;
      now_ = std::max(now_, next->at);
      const Posted posted = std::move(*next);
      posts_.erase(next);
      Arrive(posted);
    }
    now_ = end;
    if (now_ - ticked_ < seconds(1)) return;
    ticked_ = now_;
    for (int i = 0; i < size(); ++i) {
      Do(i,
         [&](OrderBook* book, OrderOutput* out) { book->OnTick(now_, out); });
    }
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  bool broken(int rank) const { return ranks_[rank]->broken; }
  int64_t step(int rank) const { return ranks_[rank]->step; }
  const std::vector<std::string>& events() const { return events_; }
  uint32_t done() const { return done_; }
  const std::map<std::string, std::string>& table() const { return table_; }
  // What a rank's link keeps.
  size_t Kept(int rank) const {
    return ranks_[rank]->puts.size() + ranks_[rank]->asked.size();
  }

 private:
  struct Rank {
    OrderBook book;
    int64_t step = -1;
    bool broken = false;
    std::map<std::string, std::string> puts = {};
    std::set<std::string> asked = {};
  };
  struct Posted {
    MonoTime at;
    int rank = 0;
    OrderMessage message;
    bool to_rank = false;
  };

  template <typename Event>
  void Do(int rank, const Event& event) {
    Rank& r = *ranks_[rank];
    OrderOutput out;
    event(&r.book, &out);
    for (const OrderMessage& message : out.messages) {
      switch (message.kind) {
        case OrderMessage::Kind::kPut:
          r.puts.emplace(message.key, message.value);
          break;
        case OrderMessage::Kind::kAsk:
          r.asked.insert(message.key);
          break;
        case OrderMessage::Kind::kForget:
          r.puts.erase(message.key);
          r.asked.erase(message.key);
          continue;
      }
      Post(rank, message);
    }
    events_.insert(events_.end(), out.events.begin(), out.events.end());
    done_ = std::max(done_, out.done);
  }
  void Post(int rank, const OrderMessage& message, bool to_rank = false) {
    std::exponential_distribution<double> late(1.0);
    const auto delay = std::chrono::duration_cast<Duration>(
        latency_ * std::min(20.0, late(random_)));
    posts_.push_back({now_ + delay, rank, message, to_rank});
  }
  void Arrive(const Posted& posted) {
    Rank& r = *ranks_[posted.rank];
    if (r.broken) return;
    const OrderMessage& message = posted.message;
    if (posted.to_rank) {
      if (r.asked.erase(message.key) == 0) return;
      Do(posted.rank, [&](OrderBook* book, OrderOutput* out) {
        book->OnValue(message.key, message.value, now_, out);
      });
      return;
    }
    if (message.kind == OrderMessage::Kind::kPut) {
      const auto [it, is_new] = table_.emplace(message.key, message.value);
      if (!is_new) return;
      for (const int rank : waiting_[message.key]) {
        Post(rank, {OrderMessage::Kind::kPut, it->first, it->second}, true);
      }
      return;
    }
    waiting_[message.key].insert(posted.rank);
    if (const auto it = table_.find(message.key); it != table_.end()) {
      Post(posted.rank, {OrderMessage::Kind::kPut, it->first, it->second},
           true);
    }
  }

  std::mt19937 random_;
  const Duration latency_;
  MonoTime now_{};
  MonoTime ticked_{};
  int joins_ = 0;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Posted> posts_;
  std::map<std::string, std::string> table_;
  std::map<std::string, std::set<int>> waiting_;
  std::vector<std::string> events_;
  uint32_t done_ = 0;
};

// The steps at which each rank's answer was yes, for steps of `time`, until all
// have answered yes or `most` steps were made.
std::vector<std::set<int64_t>> Obeyed(Cluster* cluster, OrderKind question,
                                      int64_t from, int most, Duration time) {
  std::vector<std::set<int64_t>> obeyed(cluster->size());
  for (int64_t step = from; step < from + most; ++step) {
    for (int rank = 0; rank < cluster->size(); ++rank) {
      cluster->Step(rank, step);
      OrderAnswer answer = cluster->Ask(rank, question);
      while (answer == OrderAnswer::kWait) {
        cluster->Pass(milliseconds(10));
        answer = cluster->Ask(rank, question);
      }
      if (answer == OrderAnswer::kYes) obeyed[rank].insert(step);
    }
    cluster->Pass(time);
  }
  return obeyed;
}

TEST(OrderTextTest, KeysAndValuesComeBack) {
  const auto answer = ParseOrderKey(AnswerKey(12, 3));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, OrderKey::Kind::kAnswer);
  EXPECT_EQ(answer->number, 12);
  EXPECT_EQ(answer->rank, 3);
  EXPECT_EQ(ParseOrderKey(ProposalKey(7))->kind, OrderKey::Kind::kProposal);
  EXPECT_EQ(ParseOrderKey(DecisionKey(7))->kind, OrderKey::Kind::kDecision);
  EXPECT_EQ(ParseOrderKey(HereKey(5))->rank, 5);
  for (const char* bad : {"", "order/", "order/x/p", "order/1", "order/1/a",
                          "order/1/a/-1", "order/1/p/2", "order/here/x",
                          "shm/1", "order/99999999999999999999/p"}) {
    EXPECT_FALSE(ParseOrderKey(bad)) << bad;
  }
  const auto proposal =
      ParseProposal(FormatProposal({"tok", {OrderKind::kStop, 99, 4, false}}));
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->token, "tok");
  EXPECT_EQ(proposal->order.kind, OrderKind::kStop);
  EXPECT_EQ(proposal->order.step, 99);
  EXPECT_EQ(proposal->order.directive, 4u);
  for (const char* bad : {"", "t stop 1", "t halt 1 1", "t stop -1 1",
                          "t stop 1 1 1", "t stop x 1"}) {
    EXPECT_FALSE(ParseProposal(bad)) << bad;
  }
  EXPECT_EQ(ParseAnswer("t late 7")->late, 7);
  EXPECT_EQ(ParseAnswer("t ok u")->by, "u");
  EXPECT_FALSE(ParseAnswer("t no u"));
  EXPECT_FALSE(ParseAnswer("t late"));
}

TEST(OrderBookTest, AllRanksSaveOnceAtOneStep) {
  Cluster cluster(4, 1, milliseconds(20));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 40, milliseconds(100));
  ASSERT_EQ(obeyed[0].size(), 1u);
  for (const auto& steps : obeyed) EXPECT_EQ(steps, obeyed[0]);
  // About a second ahead.
  EXPECT_LE(*obeyed[0].begin(), 25);
  EXPECT_EQ(cluster.done(), 0u);
  cluster.Saved(*obeyed[0].begin());
  EXPECT_EQ(cluster.done(), 1u);
  EXPECT_THAT(cluster.events(), IsEmpty());
}

TEST(OrderBookTest, AStopStaysAndMakesACheckpointDue) {
  Cluster cluster(3, 2, milliseconds(20));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kStop);
  const auto stops =
      Obeyed(&cluster, OrderKind::kStop, 1, 40, milliseconds(100));
  ASSERT_FALSE(stops[0].empty());
  for (const auto& steps : stops) EXPECT_EQ(steps, stops[0]);
  EXPECT_EQ(*stops[0].rbegin(), 40);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(cluster.Ask(rank, OrderKind::kCheckpoint), OrderAnswer::kYes);
    EXPECT_EQ(cluster.Ask(rank, OrderKind::kCheckpoint), OrderAnswer::kNo);
  }
  EXPECT_EQ(cluster.done(), 1u);
}

TEST(OrderBookTest, AloneItIsTheNextStep) {
  Cluster cluster(1, 1, milliseconds(20));
  cluster.JoinAll();
  cluster.Step(0, 5);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  cluster.Direct(1, OrderKind::kCheckpoint);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  cluster.Step(0, 6);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kYes);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  EXPECT_THAT(cluster.table(), IsEmpty());
}

TEST(OrderBookTest, ARepeatedDirectiveIsOneOrder) {
  Cluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kCheckpoint);
  cluster.Direct(1, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 20, milliseconds(200));
  cluster.Direct(1, OrderKind::kCheckpoint);
  const auto later =
      Obeyed(&cluster, OrderKind::kCheckpoint, 21, 20, milliseconds(200));
  EXPECT_EQ(obeyed[1].size(), 1u);
  EXPECT_THAT(later, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(OrderBookTest, ARankWaitsForTheDecisionAtItsStep) {
  Cluster cluster(3, 1, milliseconds(1));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.StepAll(1);
  cluster.Pass(seconds(1));
  cluster.Break(2);  // Its answer does not come.
  cluster.Direct(1, OrderKind::kCheckpoint);
  cluster.Pass(milliseconds(500));
  cluster.Step(1, 1000);
  EXPECT_EQ(cluster.Ask(1, OrderKind::kCheckpoint), OrderAnswer::kWait);
  // A stop is not in question.
  EXPECT_EQ(cluster.Ask(1, OrderKind::kStop), OrderAnswer::kNo);
  // Rank 0 arrives there, and drops it.
  cluster.Step(0, 1000);
  EXPECT_EQ(cluster.Ask(0, OrderKind::kCheckpoint), OrderAnswer::kNo);
  cluster.Pass(milliseconds(500));
  EXPECT_EQ(cluster.Ask(1, OrderKind::kCheckpoint), OrderAnswer::kNo);
}

TEST(OrderBookTest, GivesUpWhereARankDoesNotJoin) {
  Cluster cluster(3, 1, milliseconds(5));
  cluster.Join(0);
  cluster.Join(1);
  cluster.AskAll();
  cluster.Direct(2, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 50, milliseconds(500));
  EXPECT_THAT(obeyed, ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  EXPECT_THAT(cluster.events(), ElementsAre(HasSubstr("by rank 2;")));
  EXPECT_EQ(cluster.done(), 2u);
  // Nothing was proposed, so nobody waited.
  EXPECT_FALSE(cluster.table().contains(ProposalKey(1)));
}

TEST(OrderBookTest, GivesUpWhereTheProgramDoesNotAsk) {
  Cluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.Direct(1, OrderKind::kStop);
  for (int i = 0; i < 7; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.events(),
              ElementsAre(HasSubstr("does not ask session.should_stop()")));
  EXPECT_EQ(cluster.done(), 0u) << "not agreed";
  // A checkpoint waits for the first step.
  cluster.Direct(2, OrderKind::kCheckpoint);
  for (int i = 0; i < 60; ++i) cluster.Pass(seconds(1));
  EXPECT_EQ(cluster.done(), 0u);
  cluster.StepAll(1);
  for (int i = 0; i < 2; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.events().back(), HasSubstr("checkpoint_due()"));
  EXPECT_EQ(cluster.done(), 2u);
}

TEST(OrderBookTest, GivesUpWhereARankIsSilent) {
  Cluster cluster(3, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Pass(seconds(1));
  cluster.Break(2);
  cluster.Direct(1, OrderKind::kCheckpoint);
  for (int i = 0; i < 60; ++i) cluster.Pass(seconds(1));
  EXPECT_THAT(cluster.events(),
              ElementsAre(HasSubstr("no answer came from rank 2")));
  EXPECT_EQ(cluster.done(), 1u);
  // Back again, it answers.
  cluster.Mend(2);
  cluster.Direct(2, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 30, milliseconds(100));
  EXPECT_EQ(obeyed[0].size(), 1u);
  EXPECT_EQ(obeyed[0], obeyed[2]);
}

TEST(OrderBookTest, ClosingDropsWhatIsNotAgreed) {
  Cluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Pass(seconds(1));
  cluster.Break(1);
  cluster.Direct(1, OrderKind::kStop);
  cluster.Pass(milliseconds(100));
  cluster.Close(0);
  EXPECT_THAT(cluster.events(), ElementsAre(HasSubstr("closes its session")));
  cluster.Mend(1);
  const auto stops =
      Obeyed(&cluster, OrderKind::kStop, 1, 20, milliseconds(100));
  EXPECT_THAT(stops, ElementsAre(IsEmpty(), IsEmpty()));
}

TEST(OrderBookTest, ASecondProcessOfARankTakesNoPartInOldOrders) {
  Cluster cluster(2, 1, milliseconds(5));
  cluster.JoinAll();
  cluster.AskAll();
  cluster.Direct(1, OrderKind::kCheckpoint);
  EXPECT_EQ(
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 30, milliseconds(100))[1]
          .size(),
      1u);
  // Both begin anew, at step 1.
  cluster.Rejoin(1);
  cluster.Rejoin(0);
  cluster.AskAll();
  cluster.Pass(seconds(1));
  EXPECT_THAT(
      Obeyed(&cluster, OrderKind::kCheckpoint, 1, 30, milliseconds(100)),
      ElementsAre(IsEmpty(), IsEmpty()));
  cluster.Direct(2, OrderKind::kCheckpoint);
  const auto obeyed =
      Obeyed(&cluster, OrderKind::kCheckpoint, 31, 30, milliseconds(100));
  EXPECT_EQ(obeyed[0].size(), 1u);
  EXPECT_EQ(obeyed[0], obeyed[1]);
}

TEST(OrderBookTest, ManyOrdersCostLittle) {
  Cluster cluster(3, 1, milliseconds(2));
  cluster.JoinAll();
  cluster.AskAll();
  int64_t step = 1;
  for (uint32_t id = 1; id <= 200; ++id) {
    cluster.Direct(id, OrderKind::kCheckpoint);
    const auto obeyed =
        Obeyed(&cluster, OrderKind::kCheckpoint, step, 15, milliseconds(200));
    step += 15;
    ASSERT_EQ(obeyed[2].size(), 1u) << id;
    cluster.Saved(step);
  }
  EXPECT_EQ(cluster.done(), 200u);
  EXPECT_LE(cluster.Kept(0), 140u);
  EXPECT_LE(cluster.Kept(1), 4u);
  size_t bytes = 0;
  for (const auto& [key, value] : cluster.table()) {
    bytes += key.size() + value.size();
  }
  // Of three ranks; tokens of 16 bytes add 30.
  EXPECT_LE(bytes / 200, 90u);
}

// Data-parallel ranks: nobody begins a step before all have ended the last one.
// Asynchronous ones go at their own speeds, and ask about the same steps.
struct Simulation {
  int ranks = 0;
  bool synchronous = true;
  int64_t end = 0;
  Duration step_time{};
  Duration latency{};
};

class Player {
 public:
  Player(const Simulation& simulation, unsigned seed)
      : simulation_(simulation),
        random_(seed),
        cluster_(simulation.ranks, seed, simulation.latency),
        players_(simulation.ranks) {}

  void Play() {
    cluster_.JoinAll();
    cluster_.AskAll();
    Duration still{};
    while (std::any_of(players_.begin(), players_.end(), [&](const Rank& p) {
      return p.step < simulation_.end || p.asking;
    })) {
      Disturb();
      bool moved = false;
      for (int rank = 0; rank < simulation_.ranks; ++rank) {
        moved = Move(rank) || moved;
      }
      const Duration tick = simulation_.step_time / 4;
      cluster_.Pass(tick);
      still = moved ? Duration{} : still + tick;
      ASSERT_LT(still, std::chrono::minutes(10)) << "they wait for ever";
    }
    for (const auto& player : players_) {
      EXPECT_EQ(player.due, players_[0].due);
      EXPECT_EQ(player.stops, players_[0].stops);
    }
  }
  size_t due() const { return players_[0].due.size(); }
  const Cluster& cluster() const { return cluster_; }

 private:
  struct Rank {
    int64_t step = 0;
    bool asking = false;  // About the step.
    bool due_asked = false;
    Duration left{};
    std::set<int64_t> due;
    std::set<int64_t> stops;
  };

  bool Chance(double chance) {
    return std::uniform_real_distribution<double>(0, 1)(random_) < chance;
  }
  void Disturb() {
    if (Chance(0.02) && next_id_ < 60) {
      cluster_.Direct(next_id_++, OrderKind::kCheckpoint);
    }
    if (Chance(0.0005) && !stopped_) {
      stopped_ = true;
      cluster_.Direct(next_id_++, OrderKind::kStop);
    }
    const int rank =
        std::uniform_int_distribution<int>(0, simulation_.ranks - 1)(random_);
    if (cluster_.broken(rank) ? Chance(0.2) : Chance(0.02)) {
      if (cluster_.broken(rank)) {
        cluster_.Mend(rank);
      } else {
        cluster_.Break(rank);
      }
    }
  }
  // Whether the rank did anything.
  bool Move(int rank) {
    Rank& r = players_[rank];
    if (r.asking) return Question(rank);
    if (r.step >= simulation_.end) return false;
    const int64_t slowest = std::min_element(players_.begin(), players_.end(),
                                             [](const Rank& a, const Rank& b) {
                                               return a.step < b.step;
                                             })
                                ->step;
    if (simulation_.synchronous && r.step > slowest) return false;
    if (r.left > Duration{}) {
      r.left -= simulation_.step_time / 4;
      return true;
    }
    cluster_.Step(rank, ++r.step);
    r.left = std::chrono::duration_cast<Duration>(
        simulation_.step_time *
        std::uniform_real_distribution<double>(0.2, 1.8)(random_));
    r.asking = true;
    r.due_asked = false;
    return true;
  }
  bool Question(int rank) {
    Rank& r = players_[rank];
    if (!r.due_asked) {
      const OrderAnswer due = cluster_.Ask(rank, OrderKind::kCheckpoint);
      if (due == OrderAnswer::kWait) return false;
      r.due_asked = true;
      if (due == OrderAnswer::kYes) {
        r.due.insert(r.step);
        if (rank == 0) cluster_.Saved(r.step);
      }
    }
    const OrderAnswer stop = cluster_.Ask(rank, OrderKind::kStop);
    if (stop == OrderAnswer::kWait) return false;
    if (stop == OrderAnswer::kYes) r.stops.insert(r.step);
    r.asking = false;
    return true;
  }

  const Simulation simulation_;
  std::mt19937 random_;
  Cluster cluster_;
  std::vector<Rank> players_;
  uint32_t next_id_ = 1;
  bool stopped_ = false;
};

TEST(OrderBookSimulationTest, NoTwoRanksEverDisagree) {
  size_t orders = 0;
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int from, int to) {
      return std::uniform_int_distribution<int>(from, to)(random);
    };
    Player player({.ranks = pick(1, 6),
                   .synchronous = pick(0, 3) > 0,
                   .end = 300,
                   .step_time = milliseconds(pick(4, 1000)),
                   .latency = milliseconds(pick(1, 800))},
                  seed);
    player.Play();
    if (::testing::Test::HasFailure()) return;
    orders += player.due();
  }
  // Most are not given up.
  EXPECT_GT(orders, 600u);
}

}  // namespace
}  // namespace lockstep::worker::runtime
