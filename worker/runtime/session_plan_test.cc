// The reduction plan across generations: three ranks over TCP, where the bits
// of a sum depend on how gradients lie in buckets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "common/model/reduction_plan.h"
#include "worker/collective/periodic_test_util.h"
#include "worker/rank_link/testing.h"
#include "worker/runtime/session.h"
#include "worker/runtime/session_test_util.h"
#include "worker/runtime/testing.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kPlanJob[] = "mnist";
constexpr int kRanks = 3;
const std::vector<Parameter> kPlanParameters = {
    {"a", 90'000}, {"b", 70'001}, {"c", 50'003}, {"d", 30'000}, {"e", 10}};

// What one generation does, and what became of it.
struct Generation {
  // Given.
  std::string plan = {};
  bool pinned = false;
  int hosts = 1;
  std::string backend = "tcp";
  // A rank that is told another host's address.
  int misplaced = -1;
  Duration forming_timeout = seconds(30);
  std::vector<size_t> readiness = {4, 3, 2, 1, 0};
  int64_t start_step = 0;
  ReducerOptions reducer = {.learn_order = true};

  // Found: by step, rank 0's sums; by rank; of rank 0.
  std::map<int64_t, std::vector<std::vector<float>>> sums = {};
  std::vector<Status> statuses = {};
  std::string told_plan = {};
  std::string session_plan = {};
  std::vector<std::string> events = {};
  std::vector<int> reasons = {};
};

std::vector<float> Gradient(int64_t step, size_t parameter, int rank) {
  std::mt19937 random(static_cast<uint32_t>(step * 1000 + parameter * 10 +
                                            static_cast<size_t>(rank)));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(kPlanParameters[parameter].elements);
  collective::FillPeriodic(values.data(), sizeof(float), values.size(), 1009,
                           [&](size_t i) { values[i] = uniform(random); });
  return values;
}

Status Train(Session* session, Generation* generation) {
  LOCKSTEP_RETURN_IF_ERROR(session->Form({}));
  ReducerOptions options = generation->reducer;
  options.start_step = generation->start_step;
  options.state_hash_interval = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Reducer> reducer,
                            session->MakeReducer(kPlanParameters, options));
  while (reducer->committed() < 5) {
    for (const size_t i : generation->readiness) {
      LOCKSTEP_RETURN_IF_ERROR(
          reducer->Put(i, Gradient(reducer->step(), i, session->rank())));
    }
    LOCKSTEP_RETURN_IF_ERROR(reducer->Finish({}).status());
    if (session->chief()) {
      auto& sums = generation->sums[reducer->step()];
      for (size_t i = 0; i < kPlanParameters.size(); ++i) {
        const std::span<const float> sum = reducer->gradient(i);
        sums.emplace_back(sum.begin(), sum.end());
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(reducer->Commit().status());
  }
  if (session->chief()) generation->session_plan = session->reduction_plan();
  return OkStatus();
}

v1::RankWelcome Welcome(const Generation& generation, int rank) {
  v1::RankWelcome welcome;
  welcome.set_rank(rank);
  welcome.set_world_size(kRanks);
  welcome.set_generation(1);
  welcome.set_job(kPlanJob);
  welcome.set_job_key(std::string(32, 'k'));
  welcome.set_spec_hash(std::string(32, 's'));
  welcome.set_bind_address(rank == generation.misplaced ? "192.0.2.1"
                                                        : "127.0.0.1");
  welcome.set_hosts(generation.hosts);
  welcome.set_reduction_plan(generation.plan);
  welcome.set_reduction_plan_pinned(generation.pinned);
  return welcome;
}

// Each with ranks, a link and ports of its own.
Generation Ran(Generation generation) {
  rank_link::TempDir dir;
  rank_link::TestDaemon daemon(dir.path() + "/link");
  std::vector<std::unique_ptr<Session>> sessions;
  for (int r = 0; r < kRanks; ++r) {
    daemon.Expect({kPlanJob, 1, r}, RankNonce(r), Welcome(generation, r));
    SetRankEnvironment(daemon.path(), kPlanJob, 1, r);
    SessionOptions options;
    options.backend = generation.backend;
    options.operation_timeout = seconds(20);
    options.forming_timeout = generation.forming_timeout;
    auto session = Session::Join(options);
    EXPECT_TRUE(session.ok()) << session.status();
    sessions.push_back(*std::move(session));
  }
  generation.statuses.resize(kRanks);
  RunRanks(kRanks, [&](int r) {
    generation.statuses[r] = Train(sessions[r].get(), &generation);
    sessions[r]->Leave(generation.statuses[r]);
  });
  sessions.clear();
  // All that was said has been received.
  EXPECT_TRUE(daemon.WaitFor([&] { return daemon.disconnects >= kRanks; }));
  daemon.Stop();
  for (const auto& [key, report] : daemon.reports) {
    if (!report.reduction_plan().empty()) {
      EXPECT_EQ(key.rank, 0);
      generation.told_plan = report.reduction_plan();
    }
    if (!report.event().empty()) generation.events.push_back(report.event());
    if (!report.failure().empty()) {
      generation.reasons.push_back(report.failure_reason());
    }
  }
  ::unsetenv(rank_link::kLinkVariable);
  return generation;
}

void ExpectAllOk(const Generation& generation) {
  for (const Status& status : generation.statuses) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

// Bits, not values.
bool Same(const std::vector<std::vector<float>>& a,
          const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) !=
            0) {
      return false;
    }
  }
  return true;
}

ReductionPlan PlanOf(const Generation& generation) {
  auto plan = ParseReductionPlan(generation.told_plan);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : ReductionPlan();
}

// A plan without an order whose ranks form a ring whatever the size: there the
// bits depend on where in a bucket a gradient lies.
std::string RingPlan() {
  ReductionPlan plan = PlanOf(Ran({.reducer = {.learn_order = false}}));
  const std::string line = plan.communicator;
  const size_t from = line.find(" doubling=");
  const size_t to = line.find(" chunk=");
  EXPECT_NE(from, std::string::npos) << line;
  EXPECT_NE(to, std::string::npos) << line;
  plan.communicator =
      line.substr(0, from) + " doubling=0 halving=0" + line.substr(to);
  plan.order.clear();
  return Format(plan).value();
}

TEST(SessionPlanTest, ALaterGenerationSumsToTheSameBits) {
  const std::string ring = RingPlan();
  const Generation first = Ran({.plan = ring, .readiness = {1, 3, 0, 2, 4}});
  ExpectAllOk(first);
  EXPECT_EQ(first.told_plan, first.session_plan);
  const ReductionPlan plan = PlanOf(first);
  EXPECT_EQ(plan.order, (std::vector<uint32_t>{1, 3, 0, 2, 4}));
  EXPECT_EQ(plan.learned_at, 2);
  EXPECT_EQ(plan.ranks, kRanks);

  // Gradients come in another order, and what is measured may differ.
  Generation second = Ran({.plan = first.told_plan});
  ExpectAllOk(second);
  EXPECT_EQ(second.told_plan, first.told_plan);
  for (int64_t step = 1; step <= 5; ++step) {
    EXPECT_TRUE(Same(second.sums[step], first.sums.at(step))) << step;
  }
  Generation resumed = Ran({.plan = first.told_plan, .start_step = 3});
  ExpectAllOk(resumed);
  for (int64_t step = 4; step <= 5; ++step) {
    EXPECT_TRUE(Same(resumed.sums[step], first.sums.at(step))) << step;
  }
  EXPECT_THAT(resumed.events, Contains(HasSubstr("by the job's reduction "
                                                 "plan " +
                                                 HashOf(plan))));

  // Where nothing is known of what the first learned, the bits are others.
  const Generation stranger = Ran({.plan = ring});
  ExpectAllOk(stranger);
  EXPECT_FALSE(Same(stranger.sums.at(5), first.sums.at(5)));
}

TEST(SessionPlanTest, TheEventSaysHowLargeBucketsAreAndWhy) {
  const Generation measured = Ran({});
  ExpectAllOk(measured);
  EXPECT_THAT(measured.events,
              Contains(testing::ContainsRegex(
                  "^backend tcp: .*; buckets of [0-9]+ MiB: one message costs "
                  "[0-9.]+ [mu]?s, a MiB [0-9.]+ [mu]?s$")));
  const Generation given =
      Ran({.reducer = {.bucket_bytes = 64 << 10, .learn_order = true}});
  ExpectAllOk(given);
  EXPECT_THAT(given.events,
              Contains(HasSubstr("; buckets of 64 KiB, as the program asks")));
  EXPECT_EQ(PlanOf(given).bucket_bytes, 64u << 10);
}

TEST(SessionPlanTest, APlanOfAnotherShapeIsDroppedWithASentence) {
  const Generation first = Ran({});
  Generation moved = Ran({.plan = first.told_plan, .hosts = 3});
  ExpectAllOk(moved);
  EXPECT_THAT(moved.events,
              Contains(HasSubstr("is dropped, and one is made anew: it is of 3 "
                                 "ranks on 1 hosts, and these are 3 on 3")));
  EXPECT_EQ(PlanOf(moved).hosts, 3);

  // Of another backend: only the communicator can tell.
  const Generation shared = Ran({.plan = first.told_plan, .backend = "shm"});
  ExpectAllOk(shared);
  EXPECT_THAT(shared.events, Contains(HasSubstr("is dropped")));
  EXPECT_THAT(PlanOf(shared).communicator, Not(HasSubstr("tcp")));

  const Generation garbage = Ran({.plan = "lockstep-reduction-plan 9\n"});
  ExpectAllOk(garbage);
  EXPECT_THAT(garbage.events, Contains(HasSubstr("has version 9")));
}

TEST(SessionPlanTest, APlanOfOtherGradientsIsDropped) {
  const Generation first = Ran({});
  ReductionPlan plan = PlanOf(first);
  plan.layout = "0000000000000000";
  const Generation other = Ran({.plan = *Format(plan)});
  ExpectAllOk(other);
  EXPECT_THAT(other.events, Contains(HasSubstr("another model")));
  const Generation wire =
      Ran({.plan = first.told_plan,
           .reducer = {.learn_order = true, .bf16_wire = true}});
  ExpectAllOk(wire);
  EXPECT_THAT(wire.events, Contains(HasSubstr("fp32 on the wire, not bf16")));
  EXPECT_EQ(PlanOf(wire).wire, "bf16");
}

TEST(SessionPlanTest, APinnedPlanThatDoesNotFitFailsTheJobForGood) {
  const Generation first = Ran({});
  const auto expect_refused = [](Generation given, const char* why) {
    given.pinned = true;
    const Generation ran = Ran(std::move(given));
    // Who finds it first leaves, and may break off what the others are told of
    // it: those are victims, and the job's cause is the first one's.
    int refused = 0;
    for (const Status& status : ran.statuses) {
      EXPECT_FALSE(status.ok());
      if (ReasonOf(status) == "PEER_LOST") continue;
      ++refused;
      EXPECT_EQ(ReasonOf(status), "CONFIG_MISMATCH") << status;
      EXPECT_THAT(Message(status), HasSubstr("pinned reduction plan"));
      EXPECT_THAT(Message(status), HasSubstr(why));
    }
    EXPECT_GE(refused, 1);
    EXPECT_THAT(ran.reasons, Contains(53));
    EXPECT_THAT(ran.told_plan, IsEmpty());
  };
  expect_refused({.plan = first.told_plan, .hosts = 3}, "on 3");
  expect_refused({.plan = first.told_plan, .backend = "shm"},
                 "for backend tcp");
  expect_refused({.plan = first.told_plan,
                  .reducer = {.bucket_bytes = 4096, .learn_order = true}},
                 "4 KiB are asked for");
  expect_refused({.plan = "nonsense"}, "begins with the line");
}

// What one host cannot do says nothing of the plan: another try may do it.
TEST(SessionPlanTest, AnAddressThatIsNotThisHostsIsNoRefusalOfAPinnedPlan) {
  const Generation first = Ran({});
  // The others wait for the one.
  const Generation ran = Ran({.plan = first.told_plan,
                              .pinned = true,
                              .misplaced = 1,
                              .forming_timeout = seconds(1)});
  for (const Status& status : ran.statuses) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(ReasonOf(status), "CONFIG_MISMATCH") << status;
  }
  EXPECT_THAT(Message(ran.statuses[1]), HasSubstr("cannot bind to 192.0.2.1"));
  EXPECT_THAT(ran.reasons, Not(Contains(53)));
}

// Nothing is learned then: an equal plan is an equal run.
TEST(SessionPlanTest, APinnedPlanWithoutAnOrderKeepsBucketsAsTheyBegin) {
  const Generation first = Ran({});
  ReductionPlan plan = PlanOf(first);
  Generation begun = Ran(
      {.plan = first.told_plan, .pinned = true, .readiness = {0, 1, 2, 3, 4}});
  ExpectAllOk(begun);
  EXPECT_EQ(begun.told_plan, first.told_plan);
  const Generation fresh = Ran({.reducer = {.learn_order = false}});
  ExpectAllOk(fresh);
  EXPECT_THAT(PlanOf(fresh).order, IsEmpty());
  const Generation pinned = Ran(
      {.plan = fresh.told_plan, .pinned = true, .readiness = {0, 1, 2, 3, 4}});
  ExpectAllOk(pinned);
  EXPECT_EQ(pinned.told_plan, fresh.told_plan);
  EXPECT_TRUE(Same(pinned.sums.at(5), fresh.sums.at(5)));
}

}  // namespace
}  // namespace lockstep::worker::runtime
