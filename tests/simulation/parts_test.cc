// The parts of the simulated world that everything rests on.
#include <gtest/gtest.h>

#include "tests/simulation/sim_store.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/training.h"
#include "tests/simulation/world.h"

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""s;

TEST(TimelineTest, ChoicesAreTheSameOnEveryMachine) {
  EXPECT_EQ(Dice(1).Next(), 0x910a2dec89025cc1u);  // As published.
  EXPECT_EQ(HashOf("a"), 0xaf63dc4c8601ec8cu);     // As published.
  const Timeline one(7);
  const Timeline other(8);
  EXPECT_EQ(one.Delay(1s, 9s, {1, 2}), one.Delay(1s, 9s, {1, 2}));
  EXPECT_NE(one.Delay(1s, 9s, {1, 2}), one.Delay(1s, 9s, {1, 3}));
  EXPECT_NE(one.Delay(1s, 9s, {1, 2}), other.Delay(1s, 9s, {1, 2}));
}

TEST(TimelineTest, RunsEventsInOrder) {
  Timeline time(1);
  std::vector<int> order;
  time.After(2s, [&] { order.push_back(3); });
  time.After(1s, [&] {
    order.push_back(1);
    time.After(0s, [&] { order.push_back(2); });
  });
  while (time.Step()) {
  }
  EXPECT_EQ(order, std::vector<int>({1, 2, 3}));
  EXPECT_EQ(time.passed(), 2s);
}

TEST(MoveTest, EachIsASentence) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Duration last{};
    for (const Move& move : DrawMoves(DrawPlan(seed), 200)) {
      EXPECT_GE(move.at, last);
      last = move.at;
      const std::string sentence = Describe(move);
      EXPECT_EQ(sentence.find_first_of("{}"), std::string::npos) << sentence;
    }
  }
}

class NoListener final : public SimStore::Listener {
 public:
  void OnCommit(const server::StoreBatch& /*batch*/) override {}
  void OnFault(CommitPoint /*point*/, CommitFault /*fault*/) override {}
};

TEST(SimStoreTest, ACrashBeforeACommitLosesItAndOneAfterDoesNot) {
  NoListener listener;
  SimStore store(Bug::kNone, &listener);
  ASSERT_TRUE(store.Load().ok());
  server::StoreBatch batch;
  batch.version = 1;
  batch.request = server::AnsweredRequest{"user/ann", "r1", "", "", "", {}};
  store.Arm(CommitFault::kFail, 0, {});
  EXPECT_FALSE(store.Commit(batch).ok());
  store.Arm(CommitFault::kCrashBefore, 0, {});
  EXPECT_THROW((void)store.Commit(batch), CoordinatorCrash);
  EXPECT_FALSE(store.HasAnswered("r1"));
  store.Arm(CommitFault::kCrashAfter, 0, {});
  EXPECT_THROW((void)store.Commit(batch), CoordinatorCrash);
  EXPECT_TRUE(store.HasAnswered("r1"));
  EXPECT_EQ(store.Load()->version, 1);
}

TEST(SharedDiskTest, ResumesAlongTheLineage) {
  SharedDisk disk;
  const auto add = [&](Generation generation, int64_t step) {
    SharedDisk::Entry& entry = disk.At("uid", {generation, step});
    entry.saved.generation = generation;
    entry.saved.step = step;
    entry.saved.parts = {0, 1};
    entry.complete = true;
  };
  add(1, 10);
  add(1, 20);
  add(2, 15);
  const auto step = [&](std::vector<LineageEntry> lineage) {
    const SavedState* const found = disk.FindResume("uid", lineage, false);
    return found == nullptr ? -1 : found->step;
  };
  EXPECT_EQ(step({{1, 0}}), 20);
  EXPECT_EQ(step({{1, 0}, {2, 10}}), 15);
  EXPECT_EQ(step({{2, 16}}), -1);
  disk.At("uid", {2, 15}).unsynced = {{1, 3}};
  disk.LosePower(2);
  EXPECT_EQ(disk.At("uid", {2, 15}).saved.parts.size(), 2u);
  disk.LosePower(3);
  EXPECT_EQ(disk.At("uid", {2, 15}).saved.parts.size(), 1u);
}

}  // namespace
}  // namespace lockstep::simulation
