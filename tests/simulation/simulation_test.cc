// Plays many small clusters with everything going wrong (world.h), and shows
// that bugs would be found.
//
//   LOCKSTEP_SIMULATION_SEEDS=N    how many (250; tests/run --all: more)
//   LOCKSTEP_SIMULATION_SEED=N     plays the run of this seed alone, and tells
//                                  it as a story
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "common/base/logging.h"
#include "tests/simulation/shrink.h"
#include "tests/simulation/world.h"

namespace lockstep::simulation {
namespace {

// So many seeds meet each fault at each commit point, and each kind of
// recovery.
constexpr int64_t kSeedsForCoverage = 250;
#if defined(__SANITIZE_ADDRESS__)
constexpr int64_t kSeeds = 40;
#else
constexpr int64_t kSeeds = kSeedsForCoverage;
#endif

// In so many a planted bug is found.
constexpr uint64_t kPlantedSeeds = 600;

int64_t FromEnvironment(const char* name, int64_t usual) {
  const char* const given = getenv(name);
  return given == nullptr ? usual : std::strtoll(given, nullptr, 10);
}

// A coordinator without a disk, and nodes that vanish, say so.
void Quieten() { InitLogging("simulation", "critical"); }

std::string StoryOf(const Trial& run) {
  const Trial small = Shrink(run);
  const Outcome outcome = Play(small);
  return fmt::format(
      "{} is broken: {}\nLOCKSTEP_SIMULATION_SEED={} plays it again\n{}",
      Name(outcome.violation->invariant), outcome.violation->sentence,
      run.plan.seed, Tell(small));
}

TEST(SimulationTest, InvariantsHoldWhateverHappens) {
  Quieten();
  const int64_t only = FromEnvironment("LOCKSTEP_SIMULATION_SEED", -1);
  const int64_t first = only >= 0 ? only : 1;
  const int64_t seeds =
      only >= 0 ? 1 : FromEnvironment("LOCKSTEP_SIMULATION_SEEDS", kSeeds);
  Checker::Coverage reached;
  int64_t events = 0;
  Duration passed{};
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    const Trial run = DrawTrial(static_cast<uint64_t>(seed));
    const Outcome outcome = Play(run);
    if (outcome.violation) FAIL() << StoryOf(run);
    ASSERT_GE(outcome.events, kEvents) << "seed " << seed;
    events += outcome.events;
    passed += outcome.passed;
    for (const auto& [key, count] : outcome.coverage.commits) {
      reached.commits[key] += count;
    }
    reached.generations += outcome.coverage.generations;
    reached.final_jobs += outcome.coverage.final_jobs;
    reached.checkpoints += outcome.coverage.checkpoints;
    reached.steps += outcome.coverage.steps;
    reached.late_messages += outcome.coverage.late_messages;
    reached.recoveries += outcome.coverage.recoveries;
    reached.moves += outcome.coverage.moves;
    if (outcome.coverage.smaller > 0) ++reached.smaller;
    if (outcome.coverage.returns > 0) ++reached.returns;
    reached.partial += outcome.coverage.partial;
  }
  printf(
      "%lld seeds, %lld events, %s of virtual time, %d jobs, %d "
      "generations, %d recoveries (%d to other nodes), %d steps of ranks, %d "
      "checkpoints; jobs of %d seeds trained while ranks were away, and of %d "
      "seeds grew again; %d generations had fewer tasks\n",
      static_cast<long long>(seeds), static_cast<long long>(events),
      FormatDuration(passed).c_str(), reached.final_jobs, reached.generations,
      reached.recoveries, reached.moves, reached.steps, reached.checkpoints,
      reached.smaller, reached.returns, reached.partial);
  if (only >= 0) {
    printf("%s", Tell(DrawTrial(static_cast<uint64_t>(only))).c_str());
    return;
  }
  if (seeds < kSeedsForCoverage) return;
  // At each commit point the coordinator died before and after, and the disk
  // failed.
  for (int point = 0; point < kCommitPoints; ++point) {
    for (const CommitFault fault :
         {CommitFault::kCrashBefore, CommitFault::kCrashAfter,
          CommitFault::kFail}) {
      const auto key = std::make_pair(static_cast<CommitPoint>(point), fault);
      EXPECT_GT(reached.commits[key], 0)
          << Name(key.first) << ", fault " << static_cast<int>(fault);
    }
  }
  EXPECT_GT(reached.late_messages, seeds / 10);
  EXPECT_GT(reached.checkpoints, seeds);
  EXPECT_GT(reached.recoveries, seeds / 8);
  EXPECT_GT(reached.moves, seeds / 125);
  EXPECT_GT(reached.smaller, seeds / 25);
  EXPECT_GT(reached.returns, seeds / 50);
  EXPECT_GT(reached.partial, seeds / 50);
  EXPECT_GT(reached.generations, 2 * seeds);
}

TEST(SimulationTest, ASeedIsPlayedTheSameWayAgain) {
  Quieten();
  for (const uint64_t seed : {3, 4, 5, 6, 7}) {
    const Outcome first = Play(DrawTrial(seed));
    const Outcome again = Play(DrawTrial(seed), /*tell=*/true);
    EXPECT_EQ(first.digest, again.digest) << "seed " << seed;
    EXPECT_EQ(first.events, again.events) << "seed " << seed;
    EXPECT_NE(first.digest, Play(DrawTrial(seed + 100)).digest);
  }
}

class PlantedBugTest : public testing::TestWithParam<BugInfo> {};

INSTANTIATE_TEST_SUITE_P(Bugs, PlantedBugTest, testing::ValuesIn(kBugs),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(PlantedBugTest, IsFoundAndToldInFewMoves) {
  Quieten();
  const BugInfo& bug = GetParam();
  std::string others;
  for (uint64_t seed = 1; seed <= kPlantedSeeds; ++seed) {
    const Trial run = DrawTrial(seed, bug.bug);
    const Outcome outcome = Play(run);
    if (!outcome.violation) continue;
    if (outcome.violation->invariant != bug.found_by) {
      others += fmt::format("seed {}: {}, {}\n", seed,
                            Name(outcome.violation->invariant),
                            outcome.violation->sentence);
      continue;
    }
    const Trial small = Shrink(run);
    EXPECT_LE(small.moves.size(), 15u) << Tell(small);
    // Without the bug the same moves do no harm.
    Trial right = small;
    right.bug = Bug::kNone;
    const Outcome well = Play(right);
    EXPECT_FALSE(well.violation) << well.violation->sentence;
    printf("%s: seed %llu, %zu moves: %s\n", std::string(bug.name).c_str(),
           static_cast<unsigned long long>(seed), small.moves.size(),
           Play(small).violation->sentence.c_str());
    return;
  }
  FAIL() << bug.what << ": not found in " << kPlantedSeeds << " seeds\n"
         << others;
}

}  // namespace
}  // namespace lockstep::simulation
