#include "server/core/lineage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "server/core/scenes.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr int64_t kNotSaid = LineageEntry::kNotSaid;

// As worker/checkpoint/manifest.h says it.
bool IsAlive(const std::vector<LineageEntry>& lineage, Generation generation,
             int64_t step) {
  bool listed = false;
  for (const LineageEntry& entry : lineage) {
    if (entry.generation == generation) {
      listed = entry.start_step <= step;
    } else if (entry.generation > generation && entry.start_step != kNotSaid &&
               entry.start_step < step) {
      return false;
    }
  }
  return listed;
}

std::vector<LineageEntry> Compacted(std::vector<LineageEntry> lineage,
                                    size_t most = kMaxLineage) {
  CompactLineage(&lineage, most);
  return lineage;
}

TEST(LineageTest, WhatALaterGenerationBeganBeforeGoes) {
  EXPECT_THAT(Compacted({{1, 0}, {2, 100}, {3, 200}, {4, 150}, {5, kNotSaid}}),
              ElementsAre(LineageEntry{1, 0}, LineageEntry{2, 100},
                          LineageEntry{4, 150}, LineageEntry{5, kNotSaid}));
  EXPECT_THAT(Compacted({{1, 0}, {2, 100}, {3, 0}}),
              ElementsAre(LineageEntry{1, 0}, LineageEntry{3, 0}));
}

// Whatever a checkpoint's name is, it is as alive as before.
TEST(LineageTest, WhatIsTakenOutNamesNothing) {
  std::mt19937 dice(7);
  int shorter = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<LineageEntry> lineage;
    const Generation last = 1 + dice() % 12;
    for (Generation g = 1; g <= last; ++g) {
      lineage.push_back(
          {g, dice() % 4 == 0 ? kNotSaid : static_cast<int64_t>(dice() % 8)});
    }
    const std::vector<LineageEntry> kept = Compacted(lineage);
    if (kept.size() < lineage.size()) ++shorter;
    for (Generation g = 1; g <= last + 1; ++g) {
      for (int64_t step = 0; step <= 9; ++step) {
        ASSERT_EQ(IsAlive(kept, g, step), IsAlive(lineage, g, step))
            << "round " << round << ": g" << g << " at " << step;
      }
    }
  }
  EXPECT_GT(shorter, 200);
}

// A job that saved once and was then moved for months.
TEST(LineageTest, TheOneThatSavedOutlivesThoseThatDidNot) {
  std::vector<LineageEntry> lineage = {{1, 0}, {2, 40}};
  for (Generation g = 3; g < 5000; ++g) {
    lineage.push_back({g, g % 2 == 0 ? kNotSaid : int64_t{100}});
  }
  const std::vector<LineageEntry> kept = Compacted(lineage, 100);
  EXPECT_THAT(kept, SizeIs(100));
  EXPECT_TRUE(IsAlive(kept, 1, 40));
  EXPECT_TRUE(IsAlive(kept, 2, 100)) << "what all of them resumed from";
  EXPECT_EQ(kept.back(), lineage.back());
}

TEST(LineageTest, OfThoseThatSavedTheOldestGo) {
  std::vector<LineageEntry> lineage;
  for (Generation g = 1; g <= 50; ++g) {
    lineage.push_back({g, static_cast<int64_t>(g) * 10});
  }
  const std::vector<LineageEntry> kept = Compacted(lineage, 3);
  EXPECT_THAT(kept, ElementsAre(LineageEntry{48, 480}, LineageEntry{49, 490},
                                LineageEntry{50, 500}));
  EXPECT_THAT(Compacted(lineage, 1), ElementsAre(LineageEntry{50, 500}));
}

// A year of refusals leaves nothing.
TEST(LineageTest, GenerationsThatStartedNoRankLeaveNothing) {
  Scene s = Running();
  s.job.cluster.reset();
  s.job.lineage = {{1, 0}, {2, kNotSaid}};
  s.job.generation = 2;
  for (int i = 0; i < 3000; ++i) {
    ++s.job.generation;
    AddGeneration(&s.job);
  }
  EXPECT_THAT(s.job.lineage,
              ElementsAre(LineageEntry{1, 0}, LineageEntry{3002, kNotSaid}));
}

TEST(LineageTest, GenerationsThatDidStartRanksStayUpToTheBound) {
  Scene s = Running();
  ASSERT_TRUE(s.job.cluster);
  for (int i = 0; i < 3000; ++i) {
    ++s.job.generation;
    AddGeneration(&s.job);
  }
  EXPECT_THAT(s.job.lineage, SizeIs(kMaxLineage));
  EXPECT_EQ(s.job.lineage.front(), (LineageEntry{1, 0}))
      << "where the checkpoints may be";
  EXPECT_EQ(s.job.lineage.back().generation, s.job.generation);
}

}  // namespace
}  // namespace lockstep::server
