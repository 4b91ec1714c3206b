#include "worker/agent/prepare/preparation_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Two tasks; the first has two ranks.
LocalGang Gang() {
  LocalGang gang;
  gang.assignment.spec.emplace();
  LocalTask two;
  two.ranks = {{0, 0, {}}, {1, 1, {}}};
  LocalTask one;
  one.ranks = {{2, 0, {}}};
  gang.assignment.spec->tasks = {two, one};
  gang.status.phase = GangPhase::kLaunched;
  gang.status.ranks.resize(3);
  for (int32_t rank = 0; rank < 3; ++rank) gang.status.ranks[rank].rank = rank;
  return gang;
}

TEST(PreparationTimesTest, ATaskIsStartedOnceAllOfItsRanksRun) {
  const GangKey key{"job", 1};
  LocalGang gang = Gang();
  PreparationTimes times;
  const MonoTime start{};
  times.Set(key, TaskPreparation());
  times.NoteLaunch(key, start);
  const auto add = [&](int32_t rank, int seconds) {
    gang.status.ranks[rank].state = RankState::kStarted;
    times.NoteStarted(key, gang, rank, start + std::chrono::seconds(seconds));
  };
  add(0, 1);
  add(1, 3);
  GangStatus status = gang.status;
  times.AddTo(key, gang, start + std::chrono::seconds(10), &status);
  ASSERT_THAT(status.preparations, SizeIs(2));
  ASSERT_THAT(status.preparations[0].parts, SizeIs(1));
  EXPECT_EQ(status.preparations[0].parts[0].duration, std::chrono::seconds(3));
  EXPECT_EQ(status.preparations[0].current, "");
  // Nothing of the other runs so far.
  EXPECT_EQ(status.preparations[1].parts[0].duration, std::chrono::seconds(10));
  EXPECT_EQ(status.preparations[1].current, kExecPart);
}

TEST(PreparationTimesTest, OfAGangThatAnotherDaemonPreparedNothingIsSaid) {
  const GangKey key{"job", 1};
  const LocalGang gang = Gang();
  PreparationTimes times;
  times.NoteLaunch(key, MonoTime{});
  GangStatus status = gang.status;
  times.AddTo(key, gang, MonoTime{}, &status);
  EXPECT_THAT(status.preparations, IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
