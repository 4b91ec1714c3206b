// The stages of every operation, run on ranks that are arrays: what each side
// starts must match among those that meet, and the end must be right.
#include "worker/collective/hierarchical/stage_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "worker/collective/hierarchical/hierarchical_transport.h"
#include "worker/collective/lost_peers.h"
#include "worker/collective/operation.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Memory = std::vector<double>;

using Hosts = std::vector<int>;

const std::vector<Hosts> kPlanShapes = {
    {0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 3, 3},
    {0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 0},
    {0, 1, 2},    {0, 0, 1},          {0, 1, 1, 0, 2},
};

std::string Text(const std::optional<Operation>& o) {
  if (!o) return "nothing";
  return fmt::format("{} op {} root {} type {} count {}{}", Name(o->kind),
                     static_cast<int>(o->op), o->root, Name(o->slice.type),
                     o->slice.count, Describe(WordsOf(*o), o->part_of));
}

// What a communicator of these ranks does.
void Apply(const std::vector<Operation>& ops,
           const std::vector<Memory*>& memories) {
  const size_t n = ops.size();
  const size_t count = ops[0].slice.count;
  const auto at = [&](size_t rank, size_t i) -> double& {
    return memories[rank]->at(ops[rank].slice.offset + i);
  };
  const auto reduced = [&](size_t i) {
    double value = at(0, i);
    for (size_t r = 1; r < n; ++r) {
      value = ops[0].op == ReduceOp::kMin   ? std::min(value, at(r, i))
              : ops[0].op == ReduceOp::kMax ? std::max(value, at(r, i))
                                            : value + at(r, i);
    }
    return ops[0].op == ReduceOp::kMean ? value / static_cast<double>(n)
                                        : value;
  };
  if (ops[0].kind == CollectiveKind::kBarrier) return;
  const bool parts = ops[0].kind == CollectiveKind::kReduceScatter ||
                     ops[0].kind == CollectiveKind::kAllGather;
  if (parts) {
    ASSERT_EQ(count % n, 0u);
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t owner = parts ? i / (count / n) : 0;
    switch (ops[0].kind) {
      case CollectiveKind::kAllReduce: {
        const double value = reduced(i);
        for (size_t r = 0; r < n; ++r) at(r, i) = value;
        break;
      }
      case CollectiveKind::kReduceScatter: {
        const double value = reduced(i);
        for (size_t r = 0; r < n; ++r) at(r, i) = r == owner ? value : -1e9;
        break;
      }
      case CollectiveKind::kAllGather:
        for (size_t r = 0; r < n; ++r) at(r, i) = at(owner, i);
        break;
      case CollectiveKind::kBroadcast:
        for (size_t r = 0; r < n; ++r) at(r, i) = at(ops[0].root, i);
        break;
      case CollectiveKind::kBarrier:
      case CollectiveKind::kAllToAll:
        break;
    }
  }
}

// One stage of all groups of ranks that meet in it.
void RunStage(const std::vector<std::vector<int>>& groups,
              const std::vector<std::optional<Operation>>& stage,
              std::vector<Memory>* memories) {
  for (const std::vector<int>& group : groups) {
    std::vector<Operation> ops;
    std::vector<Memory*> members;
    for (const int rank : group) {
      ASSERT_EQ(Text(stage[rank]), Text(stage[group[0]]))
          << "ranks " << rank << " and " << group[0];
      if (!stage[rank]) continue;
      ops.push_back(*stage[rank]);
      members.push_back(&(*memories)[rank]);
    }
    if (!ops.empty()) Apply(ops, members);
  }
}

// The stage between the hosts, whose pieces may be packed.
void RunAcross(const HostLayout& layout,
               const std::vector<std::vector<int>>& groups,
               const std::vector<Chunk>& chunks,
               std::vector<Memory>* memories) {
  std::vector<std::optional<Operation>> stage;
  for (const Chunk& chunk : chunks) stage.push_back(chunk.across);
  if (chunks[0].packed.empty()) return RunStage(groups, stage, memories);
  std::vector<Memory> scratch(chunks.size());
  for (size_t rank = 0; rank < chunks.size(); ++rank) {
    ASSERT_EQ(chunks[rank].packed.size(), layout.ranks.size());
    for (const Piece& piece : chunks[rank].packed) {
      ASSERT_EQ(piece.count, chunks[rank].reduced.count);
      for (size_t i = 0; i < piece.count; ++i) {
        scratch[rank].push_back((*memories)[rank].at(piece.offset + i));
      }
    }
    EXPECT_LE(scratch[rank].size() * SizeOf(stage[rank]->slice.type),
              MostPackedBytes(layout.hosts()));
  }
  RunStage(groups, stage, &scratch);
  for (size_t rank = 0; rank < chunks.size(); ++rank) {
    const Piece& own = chunks[rank].reduced;
    for (size_t i = 0; i < own.count; ++i) {
      (*memories)[rank].at(own.offset + i) =
          scratch[rank][layout.host[rank] * own.count + i];
    }
  }
}

// chunks[r] is rank r's.
void Weight(const std::vector<Chunk>& chunks, std::vector<Memory>* memories) {
  for (size_t rank = 0; rank < chunks.size(); ++rank) {
    const Chunk& chunk = chunks[rank];
    if (chunk.weight == 1) continue;
    ASSERT_TRUE(chunk.across);
    ASSERT_TRUE(chunk.packed.empty());
    ASSERT_EQ(chunk.across->slice.offset, chunk.reduced.offset);
    ASSERT_EQ(chunk.across->slice.count, chunk.reduced.count);
    for (size_t i = 0; i < chunk.reduced.count; ++i) {
      (*memories)[rank].at(chunk.reduced.offset + i) *= chunk.weight;
    }
  }
}

// chunks[r] is rank r's.
void RunChunk(const HostLayout& layout,
              const std::vector<std::vector<int>>& across,
              const std::vector<Chunk>& chunks, std::vector<Memory>* memories) {
  size_t most = 0;
  for (const Chunk& chunk : chunks) most = std::max(most, chunk.before.size());
  for (size_t i = 0; i < most; ++i) {
    std::vector<std::optional<Operation>> stage;
    for (const Chunk& chunk : chunks) {
      stage.push_back(i < chunk.before.size()
                          ? std::optional<Operation>(chunk.before[i])
                          : std::nullopt);
    }
    RunStage(layout.ranks, stage, memories);
  }
  ASSERT_NO_FATAL_FAILURE(Weight(chunks, memories));
  ASSERT_NO_FATAL_FAILURE(RunAcross(layout, across, chunks, memories));
  std::vector<std::optional<Operation>> after;
  for (size_t rank = 0; rank < chunks.size(); ++rank) {
    const Chunk& chunk = chunks[rank];
    after.push_back(chunk.after);
    if (chunk.divide_by == 0) continue;
    for (size_t i = 0; i < chunk.reduced.count; ++i) {
      (*memories)[rank][chunk.reduced.offset + i] /= chunk.divide_by;
    }
  }
  RunStage(layout.ranks, after, memories);
}

// Runs `operation` on all ranks; the slice of rank r begins at element r.
void RunAll(const std::vector<int>& hosts, const Operation& operation,
            std::vector<Memory>* memories) {
  const auto layout = LayOutHosts(hosts);
  ASSERT_TRUE(layout.ok());
  const int n = layout->size();
  std::vector<StagePlan> plans;
  std::map<std::vector<int>, int> across_groups;
  for (int rank = 0; rank < n; ++rank) {
    Operation own = operation;
    own.slice.offset = rank;
    plans.push_back(PlanStages(*layout, rank, own));
    ASSERT_EQ(plans[rank].chunks.size(), plans[0].chunks.size());
    ASSERT_EQ(plans[rank].zero_others, plans[0].zero_others);
    const auto across = layout->Across(rank);
    if (!across.empty()) ++across_groups[across];
    if (!plans[rank].zero_others) continue;
    const size_t part = operation.slice.count / n;
    for (size_t i = 0; i < operation.slice.count; ++i) {
      if (i / part != static_cast<size_t>(rank)) {
        (*memories)[rank][rank + i] = 0;
      }
    }
  }
  std::vector<std::vector<int>> across;
  for (const auto& [group, members] : across_groups) {
    ASSERT_EQ(members, static_cast<int>(group.size()));
    across.push_back(group);
  }
  for (size_t c = 0; c < plans[0].chunks.size(); ++c) {
    std::vector<Chunk> chunks;
    for (const StagePlan& plan : plans) chunks.push_back(plan.chunks[c]);
    RunChunk(*layout, across, chunks, memories);
  }
}

double In(int rank, size_t i) {
  return static_cast<double>((rank + 1) * 1000 + i % 997);
}

std::vector<Memory> Inputs(int n, size_t count) {
  std::vector<Memory> memories;
  for (int rank = 0; rank < n; ++rank) {
    Memory memory(rank + count + 1, -7);
    for (size_t i = 0; i < count; ++i) memory[rank + i] = In(rank, i);
    memories.push_back(std::move(memory));
  }
  return memories;
}

void CheckReduction(const Hosts& hosts, const Operation& operation) {
  const int n = static_cast<int>(hosts.size());
  const size_t count = operation.slice.count;
  const ReduceOp op = operation.op;
  const bool scatter = operation.kind == CollectiveKind::kReduceScatter;
  std::vector<Memory> memories = Inputs(n, count);
  ASSERT_NO_FATAL_FAILURE(RunAll(hosts, operation, &memories));
  for (size_t i = 0; i < count; ++i) {
    const double low = In(0, i);
    const double high = In(n - 1, i);
    const double sum = (low + high) / 2 * n;
    const double want = op == ReduceOp::kMin   ? low
                        : op == ReduceOp::kMax ? high
                        : op == ReduceOp::kSum ? sum
                                               : sum / n;
    for (int rank = 0; rank < n; ++rank) {
      if (scatter && i / (count / n) != static_cast<size_t>(rank)) continue;
      // A weight is a float.
      ASSERT_NEAR(memories[rank][rank + i], want, 1e-7 * want);
    }
  }
}

TEST(StagePlanTest, EveryReductionIsRightOnEveryShape) {
  for (const auto& hosts : kPlanShapes) {
    for (const size_t base : {0, 1, 7, 10000, 20001}) {
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean}) {
        for (const DataType type : {DataType::kFloat32, DataType::kFloat16}) {
          Operation operation{.slice = {.count = base, .type = type}, .op = op};
          ASSERT_NO_FATAL_FAILURE(CheckReduction(hosts, operation));
          operation.kind = CollectiveKind::kReduceScatter;
          operation.slice.count = base / hosts.size() * hosts.size();
          ASSERT_NO_FATAL_FAILURE(CheckReduction(hosts, operation));
        }
      }
    }
  }
}

TEST(StagePlanTest, EveryMoveIsRightOnEveryShape) {
  for (const auto& hosts : kPlanShapes) {
    const int n = static_cast<int>(hosts.size());
    for (const size_t part : {0, 1, 5, 3000}) {
      const size_t count = part * n;
      std::vector<Memory> memories = Inputs(n, count);
      ASSERT_NO_FATAL_FAILURE(RunAll(
          hosts,
          {.kind = CollectiveKind::kAllGather, .slice = {.count = count}},
          &memories));
      for (int rank = 0; rank < n; ++rank) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(memories[rank][rank + i],
                    In(static_cast<int>(i / part), i));
        }
      }
      for (int root = 0; root < n; ++root) {
        memories = Inputs(n, count);
        ASSERT_NO_FATAL_FAILURE(RunAll(hosts,
                                       {.kind = CollectiveKind::kBroadcast,
                                        .slice = {.count = count},
                                        .root = root},
                                       &memories));
        for (int rank = 0; rank < n; ++rank) {
          for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(memories[rank][rank + i], In(root, i));
          }
        }
      }
    }
    std::vector<Memory> none = Inputs(n, 0);
    ASSERT_NO_FATAL_FAILURE(
        RunAll(hosts, {.kind = CollectiveKind::kBarrier}, &none));
  }
}

TEST(StagePlanTest, SeveralChunksAreRight) {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 1, 1}}) {
    constexpr size_t kCount = 1'200'001;
    std::vector<Memory> memories =
        Inputs(static_cast<int>(hosts.size()), kCount);
    ASSERT_NO_FATAL_FAILURE(
        RunAll(hosts, {.slice = {.count = kCount}}, &memories));
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      for (size_t i = 0; i < kCount; ++i) {
        const double n = static_cast<double>(hosts.size());
        ASSERT_EQ(memories[rank][rank + i],
                  n * (n + 1) / 2 * 1000 + n * (i % 997));
      }
    }
  }
}

TEST(StagePlanTest, SeveralChunksAreScattered) {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 0, 1, 1, 2, 2}}) {
    const size_t n = hosts.size();
    const size_t count = 1'200'001 / n * n;
    std::vector<Memory> memories = Inputs(static_cast<int>(n), count);
    ASSERT_NO_FATAL_FAILURE(RunAll(
        hosts,
        {.kind = CollectiveKind::kReduceScatter, .slice = {.count = count}},
        &memories));
    for (size_t i = 0; i < count; ++i) {
      const size_t rank = i / (count / n);
      const auto ranks = static_cast<double>(n);
      ASSERT_EQ(memories[rank][rank + i],
                ranks * (ranks + 1) / 2 * 1000 +
                    ranks * static_cast<double>(i % 997));
    }
  }
}

// No sum of theirs that could overflow goes in 16 bits.
TEST(StagePlanTest, SixteenBitMeansAreMadeOfTheHostsMeans) {
  const Operation mean{.slice = {.count = 1 << 20, .type = DataType::kFloat16},
                       .op = ReduceOp::kMean};
  const auto equal = LayOutHosts({0, 0, 1, 1});
  StagePlan plan = PlanStages(*equal, 0, mean);
  EXPECT_EQ(plan.chunks[0].before[0].op, ReduceOp::kMean);
  EXPECT_EQ(plan.chunks[0].across->op, ReduceOp::kMean);
  EXPECT_EQ(plan.chunks[0].weight, 1);
  EXPECT_EQ(plan.chunks[0].divide_by, 0);
  const auto unequal = LayOutHosts({0, 0, 1});
  plan = PlanStages(*unequal, 0, mean);
  EXPECT_EQ(plan.chunks[0].before[0].op, ReduceOp::kMean);
  EXPECT_EQ(plan.chunks[0].across->op, ReduceOp::kSum);
  EXPECT_FLOAT_EQ(plan.chunks[0].weight, 2.0f / 3);
  EXPECT_EQ(plan.chunks[0].divide_by, 0);
  // Who goes nowhere between the hosts, and who is alone in its host.
  plan = PlanStages(*unequal, 1, mean);
  EXPECT_EQ(plan.chunks[0].before[0].op, ReduceOp::kMean);
  EXPECT_EQ(plan.chunks[0].weight, 1);
  plan = PlanStages(*unequal, 2, mean);
  EXPECT_THAT(plan.chunks[0].before, IsEmpty());
  EXPECT_FLOAT_EQ(plan.chunks[0].weight, 1.0f / 3);
  // Wider floats are divided once.
  Operation wide = mean;
  wide.slice.type = DataType::kFloat32;
  plan = PlanStages(*unequal, 0, wide);
  EXPECT_EQ(plan.chunks[0].before[0].op, ReduceOp::kSum);
  EXPECT_EQ(plan.chunks[0].weight, 1);
  EXPECT_EQ(plan.chunks[0].divide_by, 3);
}

TEST(StagePlanTest, ALargeSliceOverlapsAndEachByteLeavesTheHostOnce) {
  const auto layout = LayOutHosts({0, 0, 1, 1});
  constexpr size_t kCount = size_t{25} << 18;  // 25 MiB
  const StagePlan plan = PlanStages(*layout, 1, {.slice = {.count = kCount}});
  EXPECT_GT(plan.chunks.size(), 10u);
  size_t across = 0;
  for (const Chunk& chunk : plan.chunks) across += chunk.across->slice.count;
  EXPECT_EQ(across, kCount / 2);
}

TEST(StagePlanTest, AReduceScatterSendsHalfOfAnAllReduce) {
  constexpr size_t kCount = size_t{24} << 18;  // 24 MiB
  const Operation scatter{.kind = CollectiveKind::kReduceScatter,
                          .slice = {.count = kCount}};
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 0, 1, 1, 1, 1},
                             Hosts{0, 0, 1, 1, 2, 2}}) {
    const auto layout = LayOutHosts(hosts);
    const StagePlan plan = PlanStages(*layout, 1, scatter);
    EXPECT_GT(plan.chunks.size(), 3u);
    size_t across = 0;
    for (const Chunk& chunk : plan.chunks) {
      EXPECT_EQ(chunk.across->kind, CollectiveKind::kReduceScatter);
      across += chunk.across->slice.count;
    }
    EXPECT_EQ(across, kCount / layout->ranks[0].size());
  }
  // Where the blocks of a host are not one it takes an all-reduce.
  const auto mixed = LayOutHosts({0, 1, 0, 1});
  EXPECT_EQ(PlanStages(*mixed, 1, scatter).chunks[0].across->kind,
            CollectiveKind::kAllReduce);
}

TEST(StagePlanTest, OverlapIsForLongReductionsOnSeveralHosts) {
  const auto two = LayOutHosts({0, 0, 1, 1});
  Operation operation{.slice = {.count = kOverlapBytes / 4}};
  EXPECT_TRUE(MayOverlap(*two, operation));
  EXPECT_FALSE(MayOverlap(*LayOutHosts({0, 0}), operation));
  EXPECT_FALSE(MayOverlap(*LayOutHosts({0, 1}), operation));
  EXPECT_TRUE(MayOverlap(*LayOutHosts({0, 1, 1}), operation));
  operation.kind = CollectiveKind::kBroadcast;
  EXPECT_FALSE(MayOverlap(*two, operation));
  operation = {.slice = {.count = kOverlapBytes / 4 - 1}};
  EXPECT_FALSE(MayOverlap(*two, operation));
}

TEST(LayoutTest, PlacesLeadersAndThoseAcross) {
  const auto two = LayOutHosts({0, 1, 0, 1});
  ASSERT_TRUE(two.ok());
  EXPECT_TRUE(two->equal);
  EXPECT_FALSE(two->contiguous);
  EXPECT_THAT(two->place, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(two->Across(2), ElementsAre(2, 3));
  const auto odd = LayOutHosts({0, 0, 1});
  EXPECT_FALSE(odd->equal);
  EXPECT_THAT(odd->Across(0), ElementsAre(0, 2));
  EXPECT_THAT(odd->Across(1), IsEmpty());
  EXPECT_TRUE(LayOutHosts({0, 0, 1, 1})->contiguous);
  EXPECT_THAT(LayOutHosts({0, 0})->Across(0), IsEmpty());
  EXPECT_FALSE(LayOutHosts({1}).ok());
  EXPECT_FALSE(LayOutHosts({0, 2}).ok());
  EXPECT_FALSE(LayOutHosts({0, -1}).ok());
}

TEST(TranslateTest, RanksBecomeThoseOfTheWhole) {
  const std::vector<int> ranks = {4, 6, 11};
  const auto t = [&](const char* text) {
    return TranslateRanks(text, ranks, 12);
  };
  EXPECT_EQ(t("rank 1 is gone"), "rank 6 is gone");
  EXPECT_EQ(t("rank 0 of 3 says that it is rank 2 of 3"),
            "rank 4 of 12 says that it is rank 11 of 12");
  EXPECT_EQ(t("ranks 0 and 2 differ; rank 0, 1 have not come"),
            "ranks 4 and 11 differ; rank 4, 6 have not come");
  EXPECT_EQ(t("rank 1, which is late"), "rank 6, which is late");
  EXPECT_EQ(t("rank 7 and 2 ranks, frank 1, rank x, rank"),
            "rank 7 and 2 ranks, frank 1, rank x, rank");
  EXPECT_EQ(t("rank 99999999999999999999"), "rank 99999999999999999999");
  EXPECT_EQ(t("rank 1 is gone; it reported: rank 0 is gone"),
            "rank 6 is gone; it reported: rank 0 is gone");
  EXPECT_EQ(t(""), "");
}

TEST(TranslateTest, LostPeersBecomeThoseOfTheWhole) {
  const Status lost = WithReason(
      WithLostPeers(Unavailable("rank 1 is gone"), {1, 2}), "PEER_LOST");
  const Status whole = hierarchical::Translate(lost, {4, 6, 11}, 12);
  EXPECT_EQ(Message(whole), "rank 6 is gone");
  EXPECT_EQ(ReasonOf(whole), "PEER_LOST");
  EXPECT_THAT(LostPeersOf(whole), ElementsAre(6, 11));
}

}  // namespace
}  // namespace lockstep::worker::collective::hierarchical
