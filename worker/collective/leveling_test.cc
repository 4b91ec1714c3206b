#include "worker/collective/leveling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LevelRecord At(int64_t step, uint64_t digest = 1) {
  return {.has_state = true, .committed = step, .digest = digest};
}

// ---- The decision ----------------------------------------------------------

TEST(PlanLevelTest, AReplacementReceivesFromAllOthers) {
  const auto plan = PlanLevel(std::array{At(7), LevelRecord(), At(7)});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, 7);
  EXPECT_THAT(plan->sources, ElementsAre(0, 2));
  EXPECT_THAT(plan->receivers, ElementsAre(1));
  EXPECT_FALSE(plan->redo_checkpoint);
}

TEST(PlanLevelTest, TheOneThatIsAStepBehindReceives) {
  const auto plan = PlanLevel(std::array{At(6, 5), LevelRecord(), At(7)});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->step, 7);
  EXPECT_THAT(plan->sources, ElementsAre(2));
  EXPECT_THAT(plan->receivers, ElementsAre(0, 1));
}

TEST(PlanLevelTest, WithoutALossNoRankReceives) {
  const auto plan = PlanLevel(std::array{At(0), At(0)});
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->receivers, IsEmpty());
}

TEST(PlanLevelTest, RanksThatLearnedTheOrderComeFirst) {
  std::array records = {At(2), At(2), At(2)};
  records[1].learned = true;
  const auto plan = PlanLevel(records);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->sources, ElementsAre(1, 0, 2));
}

TEST(PlanLevelTest, ACheckpointInFlightOnAnyRankBeginsAnew) {
  std::array records = {At(2), At(3)};
  records[0].in_flight = true;
  const auto plan = PlanLevel(records);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->redo_checkpoint);
}

TEST(PlanLevelTest, WithoutAStateThereIsNothingToGoOnFrom) {
  const auto plan = PlanLevel(std::array{LevelRecord(), LevelRecord()});
  EXPECT_EQ(ReasonOf(plan.status()), "NO_STATE");
}

TEST(PlanLevelTest, RanksThatDifferAreNamed) {
  auto plan = PlanLevel(std::array{At(7, 1), At(7, 2), At(7, 1), At(7, 3)});
  EXPECT_EQ(ReasonOf(plan.status()), "DIVERGED");
  EXPECT_THAT(Message(plan.status()),
              HasSubstr("the state of ranks 1, 3 differs from that of rank 0"));
  plan = PlanLevel(std::array{At(5), At(7)});
  EXPECT_EQ(ReasonOf(plan.status()), "DIVERGED");
  EXPECT_THAT(Message(plan.status()),
              HasSubstr("rank 1 has 7 steps, and rank 0 lacks more than one"));
}

// ---- The digest ------------------------------------------------------------

class Replica {
 public:
  explicit Replica(std::vector<size_t> sizes, unsigned char seed) {
    for (const size_t size : sizes) {
      std::vector<std::byte>& part = parts_.emplace_back(size);
      for (size_t i = 0; i < size; ++i) {
        part[i] = std::byte{static_cast<unsigned char>(seed + i * 7 + i / 251)};
      }
    }
  }
  StateMemory memory() { return {parts_.begin(), parts_.end()}; }
  std::vector<std::vector<std::byte>>& parts() { return parts_; }

 private:
  std::vector<std::vector<std::byte>> parts_;
};

TEST(StateDigestTest, DependsOnEachByteAndOnTheSizes) {
  Replica one({10, 5 << 20}, 1);
  const StateDigest digest = DigestOf(one.memory());
  EXPECT_EQ(digest.chunks.size(), 3u);
  EXPECT_EQ(DigestOf(Replica({10, 5 << 20}, 1).memory()), digest);
  one.parts()[1].back() ^= std::byte{1};
  EXPECT_NE(DigestOf(one.memory()).hash, digest.hash);
  EXPECT_NE(DigestOf(Replica({3, 0}, 1).memory()).hash,
            DigestOf(Replica({3}, 1).memory()).hash);
}

// ---- The exchange ----------------------------------------------------------

struct Outcome {
  std::optional<StatusOr<LevelResult>> result;
};

// Levels as many ranks as there are `inputs`, over `backend`.
std::vector<StatusOr<LevelResult>> LevelRanks(const std::string& backend,
                                              std::vector<LevelInput> inputs) {
  MapRendezvousStore store;
  const int n = static_cast<int>(inputs.size());
  std::vector<Outcome> outcomes(inputs.size());
  SpawnRanks(n, [&](int rank) {
    auto formed =
        FormCommunicator(TestOptionsOf(backend, rank, n, &store), nullptr);
    const auto at = static_cast<size_t>(rank);
    if (!formed.ok()) {
      outcomes[at].result = formed.status();
      return;
    }
    outcomes[at].result =
        Level(formed->get(), std::move(inputs[at]), seconds(20));
  });
  std::vector<StatusOr<LevelResult>> results;
  for (Outcome& outcome : outcomes) {
    results.push_back(*std::move(outcome.result));
  }
  return results;
}

LevelInput Survivor(Replica* replica, int64_t step, const std::string& small) {
  LevelInput input;
  input.memory = replica->memory();
  input.digest = DigestOf(input.memory);
  input.record = {
      .has_state = true, .committed = step, .digest = input.digest.hash};
  input.small = small;
  return input;
}

LevelInput Replacement(Replica* replica) {
  LevelInput input;
  input.memory = replica->memory();
  return input;
}

class LevelTest : public testing::TestWithParam<const char*> {
 protected:
  LevelTest() { ::signal(SIGPIPE, SIG_IGN); }
};

TEST_P(LevelTest, EveryRankGetsTheNewestState) {
  const std::vector<size_t> sizes = {1, 9 << 20, 0, 4 << 20, 70'001};
  Replica wanted(sizes, 3);
  std::vector<Replica> replicas = {Replica(sizes, 3), Replica(sizes, 9),
                                   Replica(sizes, 3), Replica(sizes, 4)};
  std::vector<LevelInput> inputs;
  inputs.push_back(Survivor(&replicas[0], 12, "of 0"));
  inputs.push_back(Replacement(&replicas[1]));
  inputs.push_back(Survivor(&replicas[2], 12, "of 2"));
  inputs.push_back(Survivor(&replicas[3], 11, "of 3"));
  const auto results = LevelRanks(GetParam(), std::move(inputs));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    ASSERT_TRUE(results[rank].ok()) << rank << Message(results[rank].status());
    EXPECT_EQ(results[rank]->plan.step, 12);
    EXPECT_EQ(results[rank]->small, "of 0");
    EXPECT_EQ(results[rank]->bytes, 1 + (9 << 20) + (4 << 20) + 70'001);
    EXPECT_EQ(replicas[rank].parts(), wanted.parts()) << "rank " << rank;
  }
}

TEST_P(LevelTest, WithoutAReceiverOnlyTheSmallPartIsSent) {
  std::vector<Replica> replicas = {Replica({100}, 3), Replica({100}, 3)};
  const auto results = LevelRanks(
      GetParam(), {Survivor(&replicas[0], 4, std::string(5 << 20, 'x')),
                   Survivor(&replicas[1], 4, "")});
  for (const auto& result : results) {
    ASSERT_TRUE(result.ok()) << Message(result.status());
    EXPECT_EQ(result->bytes, 0);
    EXPECT_EQ(result->small.size(), 5u << 20);
  }
}

TEST_P(LevelTest, AllFindWhatDoesNotMatch) {
  std::vector<Replica> replicas = {Replica({9 << 20}, 3),
                                   Replica({9 << 20}, 5)};
  std::vector<LevelInput> inputs = {Survivor(&replicas[0], 4, ""),
                                    Replacement(&replicas[1])};
  // The memory changed after its digest was made, as a broken one does.
  replicas[0].parts()[0][5 << 20] ^= std::byte{4};
  const auto results = LevelRanks(GetParam(), std::move(inputs));
  for (const auto& result : results) {
    EXPECT_EQ(ReasonOf(result.status()), "LEVEL_CRC");
    EXPECT_THAT(Message(result.status()), HasSubstr("rank 1 received"));
  }
}

TEST_P(LevelTest, MemoryOfOtherSizesIsRefusedByAll) {
  std::vector<Replica> replicas = {Replica({64}, 3), Replica({65}, 3)};
  const auto results = LevelRanks(
      GetParam(), {Survivor(&replicas[0], 4, ""), Replacement(&replicas[1])});
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(result.status()), HasSubstr("other sizes"));
  }
}

TEST_P(LevelTest, ALostPeerIsAnErrorThatARecoveryMayFollow) {
  MapRendezvousStore store;
  std::optional<Status> status;
  SpawnRanks(2, [&](int rank) {
    auto formed =
        FormCommunicator(TestOptionsOf(GetParam(), rank, 2, &store), nullptr);
    ASSERT_TRUE(formed.ok()) << Message(formed.status());
    if (rank == 1) return;  // Its communicator ends.
    Replica replica({64}, 3);
    status =
        Level(formed->get(), Survivor(&replica, 4, ""), seconds(20)).status();
  });
  ASSERT_TRUE(status);
  EXPECT_EQ(status->code(), StatusCode::kUnavailable);
}

TEST_P(LevelTest, AStateOnADeviceNeedsABackendThatHasOne) {
  std::vector<Replica> replicas = {Replica({64}, 3), Replica({64}, 3)};
  std::vector<LevelInput> inputs = {Survivor(&replicas[0], 4, ""),
                                    Replacement(&replicas[1])};
  for (LevelInput& input : inputs) {
    input.device = {std::exchange(input.memory, {}), &input};
  }
  for (const auto& result : LevelRanks(GetParam(), std::move(inputs))) {
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(result.status()), HasSubstr("use backend nccl"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, LevelTest,
                         testing::Values("shm", "tcp", "hierarchical"));

}  // namespace
}  // namespace lockstep::worker::collective
