#include "worker/runtime/reduction_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "worker/runtime/testing.h"

namespace lockstep::worker::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<Parameter> kPlannedParameters = {
    {"a", 100}, {"b", 200}, {"c", 3}};

// What two ranks come to, and must both; rank 0's planner.
struct Outcome {
  Status status;
  ReductionPlanner::Made made;
  std::string text;
  std::vector<std::string> notes;
};

Outcome Plan(const PlannerOptions& given, const ReducerOptions& reducer,
             const std::vector<Parameter>& parameters = kPlannedParameters) {
  FakeGroup group(2);
  std::vector<Outcome> outcomes(2);
  RunRanks(2, [&](int r) {
    const auto communicator = group.Make(r);
    const auto progress = *Progress::Create("", r, 1);
    SmallCollectives small(communicator.get(), progress.get(),
                           std::chrono::seconds(10));
    PlannerOptions options = given;
    options.ranks = 2;
    options.hosts = 1;
    ReductionPlanner planner(options);
    Outcome& out = outcomes[r];
    out.status = planner.Check();
    if (!out.status.ok()) return;
    auto made = planner.Make(communicator.get(), &small, parameters, reducer);
    out.status = made.status();
    if (made.ok()) out.made = *std::move(made);
    out.text = planner.text();
    out.notes = planner.TakeNotes();
    EXPECT_THAT(planner.TakeNotes(), IsEmpty());
  });
  EXPECT_EQ(outcomes[0].text, outcomes[1].text);
  return outcomes[0];
}

ReductionPlan Parsed(const Outcome& outcome) {
  const auto plan = ParseReductionPlan(outcome.text);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : ReductionPlan();
}

TEST(ReductionPlannerTest, AnOrderFromACheckpointIsPartOfTheNewPlan) {
  ReducerOptions reducer;
  reducer.order = {2, 0, 1};
  for (const int64_t start : {0, 1, 2, 70}) {
    reducer.start_step = start;
    const Outcome outcome = Plan({}, reducer);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    EXPECT_EQ(Parsed(outcome).order, reducer.order);
    EXPECT_EQ(Parsed(outcome).learned_at, std::min<int64_t>(start, 2));
    EXPECT_EQ(outcome.made.learned.order, reducer.order);
  }
}

TEST(ReductionPlannerTest, ThePlanWinsOverTheCheckpointsOrder) {
  ReducerOptions reducer;
  reducer.order = {2, 0, 1};
  reducer.start_step = 70;
  const Outcome first = Plan({}, reducer);
  reducer.order = {0, 1, 2};
  const Outcome second = Plan({.text = first.text}, reducer);
  EXPECT_EQ(second.text, first.text);
  EXPECT_THAT(second.made.learned.order, ElementsAre(2, 0, 1));
  EXPECT_THAT(second.notes, IsEmpty());
  EXPECT_EQ(second.made.sizes, first.made.sizes);
}

TEST(ReductionPlannerTest, ASizeThatIsAskedForWinsOverAPlan) {
  const Outcome measured = Plan({}, {});
  EXPECT_GE(Parsed(measured).bucket_bytes, 1u << 20);
  const Outcome asked =
      Plan({.text = measured.text}, {.bucket_bytes = 100 << 10});
  EXPECT_EQ(Parsed(asked).bucket_bytes, 100u << 10);
  EXPECT_EQ(asked.made.sizes, collective::SizesFor("fake", 100 << 10));
  ASSERT_EQ(asked.notes.size(), 1u);
  EXPECT_THAT(asked.notes[0], HasSubstr("and 100 KiB are asked for"));
  const Outcome pinned = Plan({.text = measured.text, .pinned = true},
                              {.bucket_bytes = 100 << 10});
  EXPECT_EQ(ReasonOf(pinned.status), "CONFIG_MISMATCH") << pinned.status;
}

TEST(ReductionPlannerTest, OtherGradientsNeedAnotherPlan) {
  const Outcome first = Plan({}, {});
  std::vector<Parameter> other = kPlannedParameters;
  other[1].elements = 201;
  const Outcome second = Plan({.text = first.text}, {}, other);
  ASSERT_EQ(second.notes.size(), 1u);
  EXPECT_THAT(second.notes[0], HasSubstr("another model"));
  EXPECT_NE(Parsed(second).layout, Parsed(first).layout);
  other.pop_back();
  const Outcome third = Plan({.text = first.text}, {}, other);
  ASSERT_EQ(third.notes.size(), 1u);
  EXPECT_THAT(third.notes[0], HasSubstr("of 3 gradients, and there are 2"));
}

TEST(ReductionPlannerTest, APlanThatIsTooLongIsUsedAndNotKept) {
  std::vector<Parameter> many;
  ReducerOptions reducer;
  reducer.bucket_bytes = 1 << 20;
  constexpr uint32_t kMany = 10'007;
  for (uint32_t i = 0; i < kMany; ++i) {
    many.push_back({"p" + std::to_string(i), 1});
    reducer.order.push_back(i * 7 % kMany);
  }
  const Outcome outcome = Plan({}, reducer, many);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.text, "");
  EXPECT_EQ(outcome.made.learned.order, reducer.order);
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_THAT(outcome.notes[0], HasSubstr("a later generation makes its own"));
}

// It needs no communicator, so a rank that is away makes it, too.
TEST(ReductionPlannerTest, AnElasticPlanIsTheSameOnEachRank) {
  PlannerOptions options;
  options.elastic = PlannerOptions::Elastic::kByShards;
  const Outcome outcome = Plan(options, {.learn_order = true});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(Parsed(outcome).communicator, "shards=2");
  EXPECT_THAT(outcome.made.how, HasSubstr("sums over 2 shards in order"));
  options.ranks = 2;
  options.hosts = 1;
  ReductionPlanner away(options);
  ASSERT_TRUE(away.Check().ok());
  ASSERT_TRUE(away.Make(nullptr, nullptr, kPlannedParameters, {}).ok());
  EXPECT_EQ(away.text(), outcome.text);
  EXPECT_EQ(away.communicator(), "") << "its communicator chooses by itself";
}

TEST(ReductionPlannerTest, AnElasticPlanSaysWhereNcclAddsUp) {
  PlannerOptions options;
  options.elastic = PlannerOptions::Elastic::kOverNccl;
  const Outcome outcome = Plan(options, {});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(Parsed(outcome).communicator, "nccl shards=2");
  EXPECT_THAT(outcome.made.how, HasSubstr("depends on the ranks"));
  // The sums have another order from here on.
  options.elastic = PlannerOptions::Elastic::kByShards;
  options.text = outcome.text;
  const Outcome other = Plan(options, {});
  EXPECT_EQ(Parsed(other).communicator, "shards=2");
  EXPECT_THAT(other.notes[0], HasSubstr("'nccl shards=2'"));
}

TEST(ReductionPlannerTest, AnElasticJobKeepsTheBucketsOfItsPlan) {
  PlannerOptions options;
  options.elastic = PlannerOptions::Elastic::kByShards;
  ReducerOptions reducer;
  reducer.bucket_bytes = 4096;
  options.text = Plan(options, reducer).text;
  const Outcome kept = Plan(options, {});
  EXPECT_EQ(kept.made.sizes.bucket, 4096u);
  EXPECT_THAT(kept.notes, IsEmpty());
  options.elastic = PlannerOptions::Elastic::kNo;
  const Outcome dropped = Plan(options, {});
  ASSERT_EQ(dropped.notes.size(), 1u);
  EXPECT_THAT(dropped.notes[0], HasSubstr("'shards=2'"));
}

TEST(ReductionPlannerTest, OneRankHasNothingToPlan) {
  ReductionPlanner planner({.ranks = 1});
  ASSERT_TRUE(planner.Check().ok());
  FakeGroup group(1);
  const auto communicator = group.Make(0);
  const auto made =
      planner.Make(communicator.get(), nullptr, kPlannedParameters, {});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(planner.text(), "");
  EXPECT_EQ(made->how, "");
}

}  // namespace
}  // namespace lockstep::worker::runtime
