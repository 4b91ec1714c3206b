// Many ranks, orders, delays and broken links, by random numbers: no two ranks
// ever disagree about a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <vector>

#include "worker/runtime/order_book_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::milliseconds;

// Data-parallel ranks: no rank begins a step before all have ended the last
// one. Asynchronous ones go at their own speeds, and ask about the same steps.
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
  const OrderCluster& cluster() const { return cluster_; }

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
  OrderCluster cluster_;
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
