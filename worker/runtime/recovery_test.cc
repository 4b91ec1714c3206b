// Recoveries of whole sessions: ranks as threads, a link and a backend as in a
// job, and a coordinator that replaces each rank that dies.
#include "worker/runtime/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/rank_link/testing.h"
#include "worker/runtime/session.h"
#include "worker/runtime/session_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using rank_link::RankKey;
using rank_link::RankLinkServer;
using rank_link::TempDir;
using rank_link::TestDaemon;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kRecoveredJob[] = "mnist";
constexpr uint64_t kRecoveredGeneration = 3;
const std::vector<Parameter> kModel = {{"w", 5000}, {"b", 10}};

RankKey KeyOfRank(int rank) {
  return {kRecoveredJob, kRecoveredGeneration, rank};
}

v1::RankWelcome Welcome(int rank, int world_size, uint32_t recovery) {
  v1::RankWelcome welcome;
  welcome.set_rank(rank);
  welcome.set_world_size(world_size);
  welcome.set_local_size(world_size);
  welcome.set_generation(kRecoveredGeneration);
  welcome.set_job(kRecoveredJob);
  welcome.set_job_key(std::string(32, 'k'));
  welcome.set_spec_hash(std::string(32, 's'));
  welcome.set_bind_address("127.0.0.1");
  welcome.set_checkpoint_interval_steps(4);
  welcome.set_attempt(1);
  welcome.set_recovery(recovery);
  return welcome;
}

// A model whose gradients depend on all that came before, and whose sums are
// exact: whatever the order of the ranks, the weights are the same bits.
struct Model {
  std::vector<float> weights = std::vector<float>(5010);
  int64_t steps = 0;  // The optimizer's.

  float Gradient(size_t i, int rank, uint64_t position) const {
    const auto mixed = static_cast<uint64_t>(weights[i] * 8) + position * 7 +
                       static_cast<uint64_t>(rank) * 3 + i;
    return static_cast<float>(mixed % 16);
  }
  void Apply(size_t i, float sum) {
    weights[i] = std::fmod(weights[i] + sum / 8, 64.0f);
  }
};

Model Undisturbed(int ranks, int64_t steps) {
  Model model;
  for (int64_t step = 0; step < steps; ++step) {
    const Model before = model;
    for (size_t i = 0; i < model.weights.size(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        sum += before.Gradient(i, rank, static_cast<uint64_t>(step));
      }
      model.Apply(i, sum);
    }
    ++model.steps;
  }
  return model;
}

// Where a rank dies.
enum class Point { kHalfReduced, kAfterFinish, kAfterCommit, kInRecover };

struct Death {
  int rank = 0;
  int64_t step = 0;
  Point point = Point::kHalfReduced;
};

// What a rank's process is and does.
struct Rank {
  std::unique_ptr<Session> session;
  std::unique_ptr<Reducer> reducer;
  Model model;
  uint64_t position = 0;
  StepOrders orders;
  int recoveries = 0;
  int64_t abandoned = 0;
  int64_t published = 0;
  Recovered last;
};

class Job {
 public:
  Job(std::string backend, int ranks, int64_t steps)
      : backend_(std::move(backend)), steps_(steps), ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      daemon_.Expect(KeyOfRank(r), RankNonce(r), Welcome(r, ranks, 0));
    }
  }
  ~Job() { ClearRankEnvironment(); }

  // Trains to the end; each death once. The processes that were there last.
  std::vector<Rank> Run(std::vector<Death> deaths = {}) {
    deaths_ = std::move(deaths);
    std::vector<Rank> last(static_cast<size_t>(ranks_));
    std::vector<std::thread> threads;
    // One after the other: the environment is the process's.
    for (int r = 0; r < ranks_; ++r) JoinRank(r, &last[r]);
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        while (!RunOnce(r, &last[r])) Replace(r, &last[r]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return last;
  }

  // The sentences of recoveries.
  std::vector<std::string> Events() {
    std::vector<std::string> events;
    daemon_.With([&](RankLinkServer*) {
      for (const auto& [key, report] : daemon_.reports) {
        if (report.event_reason() == 99) events.push_back(report.event());
      }
    });
    return events;
  }

  SessionOptions options = {.operation_timeout = seconds(20),
                            .recoverable = true,
                            .hold_timeout = seconds(20)};
  ConfigMap replacement_config = {{"model", "cnn"}};
  // Nobody replaces what dies.
  bool coordinator = true;
  bool learn_order = false;
  int64_t stop_at = 0;  // Rank 0 gets the order then.
  std::vector<Status> ends = std::vector<Status>(8);
  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};

 private:
  void JoinRank(int r, Rank* rank) {
    MutexLock lock(&mu_);
    SetRankEnvironment(daemon_.path(), kRecoveredJob, kRecoveredGeneration, r);
    SessionOptions given = options;
    given.backend = backend_;
    auto session = Session::Join(given);
    ASSERT_TRUE(session.ok()) << session.status();
    *rank = Rank();
    rank->session = *std::move(session);
  }

  // What the coordinator does when a rank has exited.
  void Replace(int r, Rank* rank) {
    {
      MutexLock lock(&mu_);
      ++recovery_;
      for (int other = 0; other < ranks_; ++other) {
        daemon_.Expect(KeyOfRank(other), RankNonce(other),
                       Welcome(other, ranks_, recovery_));
      }
    }
    JoinRank(r, rank);
  }

  // False: it has died.
  bool RunOnce(int r, Rank* rank) {
    const Status end = Train(rank);
    if (ReasonOf(end) == "DEATH") {
      // As a process that ends: nothing is said.
      rank->reducer.reset();
      rank->session.reset();
      return !coordinator;
    }
    ends[static_cast<size_t>(r)] = end;
    rank->reducer.reset();
    rank->session->Leave(end);
    return true;
  }

  bool Dies(const Rank& rank, int64_t step, Point point) {
    MutexLock lock(&mu_);
    for (auto death = deaths_.begin(); death != deaths_.end(); ++death) {
      if (death->rank != rank.session->rank() || death->step != step ||
          death->point != point) {
        continue;
      }
      deaths_.erase(death);
      return true;
    }
    return false;
  }
  static Status Dead() { return WithReason(Cancelled("dies"), "DEATH"); }

  Status Train(Rank* rank) {
    Session* const session = rank->session.get();
    bool recovering = session->identity().recovering;
    LOCKSTEP_RETURN_IF_ERROR(session->Form(
        recovering ? replacement_config : ConfigMap{{"model", "cnn"}}));
    ReducerOptions reducing;
    reducing.bucket_bytes = 4096;
    reducing.state_hash_interval = 3;
    reducing.total_steps = steps_;
    reducing.learn_order = learn_order;
    LOCKSTEP_ASSIGN_OR_RETURN(rank->reducer,
                              session->MakeReducer(kModel, reducing));
    const float* const place = rank->reducer->gradient(0).data();
    Status status = recovering ? OkStatus() : Steps(rank);
    while (recovering || CanRecover(*session, status)) {
      LOCKSTEP_ASSIGN_OR_RETURN(rank->last, RecoverRank(rank, status));
      ++rank->recoveries;
      LOCKSTEP_RETURN_IF_ERROR(Obey(rank, rank->last.orders));
      if (!learn_order) {
        EXPECT_EQ(rank->reducer->gradient(0).data(), place);
      }
      EXPECT_EQ(rank->model.steps, rank->reducer->committed());
      recovering = false;
      status = Steps(rank);
    }
    return status;
  }

  StatusOr<Recovered> RecoverRank(Rank* rank, const Status& lost) {
    const int64_t step = rank->reducer->committed();
    if (Dies(*rank, step, Point::kInRecover)) return Dead();
    ReplicaState state;
    state.memory = {std::as_writable_bytes(std::span(rank->model.weights)),
                    std::as_writable_bytes(std::span(&rank->model.steps, 1))};
    state.save = [rank] { return std::to_string(rank->position); };
    state.load = [rank](std::string_view text) {
      rank->position = std::stoull(std::string(text));
      return OkStatus();
    };
    return Recover(rank->session.get(), lost, rank->reducer.get(), state);
  }

  Status Obey(Rank* rank, const StepOrders& orders) {
    rank->orders = orders;
    if (orders.settled) {
      ++(orders.settled->complete ? rank->published : rank->abandoned);
    }
    if (!orders.checkpoint) return OkStatus();
    return rank->reducer->Vote(orders.checkpoint->id, true);
  }

  Status Steps(Rank* rank) {
    Reducer* const reducer = rank->reducer.get();
    while (reducer->committed() < steps_ && !rank->orders.stop) {
      LOCKSTEP_RETURN_IF_ERROR(Step(rank));
    }
    do {
      LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer->Settle());
      LOCKSTEP_RETURN_IF_ERROR(Obey(rank, orders));
    } while (reducer->in_flight());
    return OkStatus();
  }

  Status Step(Rank* rank) {
    Reducer* const reducer = rank->reducer.get();
    const int r = rank->session->rank();
    const int64_t step = reducer->step();
    Model* const model = &rank->model;
    if (r == 0 && step == stop_at) {
      daemon_.With([&](RankLinkServer* server) {
        server->SendDirective(KeyOfRank(0), 7, v1::RankDirective::STOP);
      });
    }
    for (size_t p : {size_t{1}, size_t{0}}) {
      const std::span<float> gradient = reducer->gradient(p);
      const size_t first = p == 0 ? 0 : 5000;
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = model->Gradient(first + i, r, rank->position);
      }
      LOCKSTEP_RETURN_IF_ERROR(reducer->Ready(p));
    }
    if (Dies(*rank, step, Point::kHalfReduced)) return Dead();
    StepInputs inputs;
    inputs.samples = 1;
    inputs.loss_sum = 1;
    inputs.position = rank->position + 1;
    if (reducer->wants_state_hash()) {
      inputs.state_hash = static_cast<uint64_t>(model->weights[7]) * 3 + 1;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, reducer->Finish(inputs));
    EXPECT_TRUE(result.apply);
    if (Dies(*rank, step, Point::kAfterFinish)) return Dead();
    for (size_t p : {size_t{0}, size_t{1}}) {
      const std::span<float> gradient = reducer->gradient(p);
      for (size_t i = 0; i < gradient.size(); ++i) {
        model->Apply((p == 0 ? 0 : 5000) + i, gradient[i]);
      }
    }
    ++model->steps;
    rank->position += 1;
    StatusOr<StepOrders> orders = reducer->Commit();
    LOCKSTEP_RETURN_IF_ERROR(orders.status());
    if (Dies(*rank, step, Point::kAfterCommit)) return Dead();
    return Obey(rank, *orders);
  }

  const std::string backend_;
  const int64_t steps_;
  const int ranks_;
  Mutex mu_;
  uint32_t recovery_ = 0;
  std::vector<Death> deaths_;
};

class RecoveryTest : public ::testing::TestWithParam<const char*> {
 protected:
  // All ranks end well, with the weights of a run without deaths.
  void ExpectUndisturbed(const Job& job, const std::vector<Rank>& ranks,
                         int64_t steps) {
    const Model expected = Undisturbed(static_cast<int>(ranks.size()), steps);
    for (size_t r = 0; r < ranks.size(); ++r) {
      EXPECT_TRUE(job.ends[r].ok()) << r << ": " << job.ends[r];
      EXPECT_EQ(ranks[r].model.steps, steps);
      EXPECT_EQ(
          std::memcmp(ranks[r].model.weights.data(), expected.weights.data(),
                      expected.weights.size() * sizeof(float)),
          0)
          << "rank " << r;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, RecoveryTest,
                         ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(RecoveryTest, WithoutADeathNothingIsDifferent) {
  Job job(GetParam(), 3, 6);
  ExpectUndisturbed(job, job.Run(), 6);
  EXPECT_TRUE(job.Events().empty());
}

TEST_P(RecoveryTest, ARankThatDiesInAReductionIsReplaced) {
  Job job(GetParam(), 3, 11);
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 5, .point = Point::kHalfReduced}});
  ExpectUndisturbed(job, ranks, 11);
  EXPECT_EQ(ranks[0].recoveries, 1);
  EXPECT_FALSE(ranks[0].last.received);
  EXPECT_TRUE(ranks[1].last.received);
  EXPECT_EQ(ranks[1].last.recovery, 1u);
  EXPECT_EQ(ranks[1].last.step, 4);
  EXPECT_EQ(ranks[1].last.bytes, 5010 * 4 + 8);
  ASSERT_TRUE(job.daemon_.WaitFor([&] {
    return job.daemon_.joined_as[KeyOfRank(1)] == std::make_pair(1u, true);
  }));
  // Step 4 had a checkpoint, and all had voted: it was in flight.
  EXPECT_EQ(ranks[2].abandoned, 1);
  EXPECT_EQ(ranks[2].published, 2);
  const std::vector<std::string> events = job.Events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0],
              AllOf(HasSubstr("recovery 1: 2 ranks went on with step 5 after"),
                    HasSubstr("; rank 1 received 19.6 KiB in")));
  // The survivors said that they wait; a new Welcome makes them say it again.
  std::set<RankKey> parked;
  job.daemon_.With([&](RankLinkServer*) {
    for (const auto& [key, report] : job.daemon_.reports) {
      if (report.parked() > 0) {
        EXPECT_EQ(report.parked(), 1u);
        parked.insert(key);
      }
    }
  });
  EXPECT_EQ(parked, (std::set<RankKey>{KeyOfRank(0), KeyOfRank(2)}));
}

TEST_P(RecoveryTest, TheFirstRankIsReplacedToo) {
  Job job(GetParam(), 3, 8);
  ExpectUndisturbed(
      job, job.Run({{.rank = 0, .step = 3, .point = Point::kHalfReduced}}), 8);
}

TEST_P(RecoveryTest, ARankMayDieBetweenReducingAndCommitting) {
  for (const Point point : {Point::kAfterFinish, Point::kAfterCommit}) {
    Job job(GetParam(), 3, 8);
    ExpectUndisturbed(job, job.Run({{.rank = 2, .step = 4, .point = point}}),
                      8);
  }
}

TEST_P(RecoveryTest, TwoRanksDieAtOnce) {
  Job job(GetParam(), 4, 8);
  ExpectUndisturbed(
      job,
      job.Run({{.rank = 0, .step = 4, .point = Point::kHalfReduced},
               {.rank = 3, .step = 4, .point = Point::kHalfReduced}}),
      8);
}

TEST_P(RecoveryTest, ADeathDuringARecoveryLeadsToTheNextOne) {
  Job job(GetParam(), 3, 8);
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced},
               {.rank = 2, .step = 3, .point = Point::kInRecover}});
  ExpectUndisturbed(job, ranks, 8);
  EXPECT_EQ(ranks[0].last.recovery, 2u);
  // The replacement dies as well, and its own.
  Job again(GetParam(), 3, 8);
  ExpectUndisturbed(
      again,
      again.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced},
                 {.rank = 1, .step = 0, .point = Point::kInRecover},
                 {.rank = 1, .step = 0, .point = Point::kInRecover}}),
      8);
}

TEST_P(RecoveryTest, OneRecoveryAfterTheOther) {
  Job job(GetParam(), 3, 20);
  std::vector<Death> deaths;
  for (int i = 0; i < 8; ++i) {
    deaths.push_back(
        {.rank = i % 3, .step = 2 * i + 2, .point = static_cast<Point>(i % 3)});
  }
  const std::vector<Rank> ranks = job.Run(deaths);
  ExpectUndisturbed(job, ranks, 20);
  EXPECT_EQ(ranks[0].last.recovery, 8u);
}

TEST_P(RecoveryTest, TheOrderIsLearnedWhoeverDies) {
  for (int64_t step = 1; step <= 4; ++step) {
    for (const int rank : {0, 2}) {
      Job job(GetParam(), 3, 7);
      job.learn_order = true;
      // In step 2: the others are learning it, in Commit.
      ExpectUndisturbed(
          job,
          job.Run({{.rank = rank, .step = step, .point = Point::kAfterFinish}}),
          7);
    }
  }
}

TEST_P(RecoveryTest, AnOrderToStopSurvives) {
  Job job(GetParam(), 3, 1000);
  job.stop_at = 5;
  const std::vector<Rank> ranks =
      job.Run({{.rank = 1, .step = 6, .point = Point::kAfterFinish},
               {.rank = 0, .step = 6, .point = Point::kHalfReduced}});
  const int64_t stopped = ranks[0].model.steps;
  EXPECT_LT(stopped, 1000);
  ExpectUndisturbed(job, ranks, stopped);
}

TEST_P(RecoveryTest, AReplacementWithAnotherConfigurationIsRefused) {
  Job job(GetParam(), 3, 8);
  job.replacement_config = {{"model", "mlp"}};
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ReasonOf(job.ends[static_cast<size_t>(r)]), "CONFIG_MISMATCH")
        << job.ends[static_cast<size_t>(r)];
  }
}

TEST_P(RecoveryTest, ARankWaitsNoLongerThanItMay) {
  Job job(GetParam(), 2, 8);
  job.coordinator = false;
  job.options.hold_timeout = milliseconds(200);
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  EXPECT_TRUE(Session::IsVictim(job.ends[0])) << job.ends[0];
  EXPECT_THAT(Message(job.ends[0]), HasSubstr("no recovery"));
}

TEST_P(RecoveryTest, TheEndOfTheGenerationEndsTheWait) {
  Job job(GetParam(), 2, 8);
  job.coordinator = false;
  std::thread coordinator([&] {
    ASSERT_TRUE(job.daemon_.WaitFor([&] {
      for (const auto& [key, report] : job.daemon_.reports) {
        if (report.parked() == 1) return true;
      }
      return false;
    }));
    job.daemon_.With([&](RankLinkServer* server) {
      server->SendAbort(KeyOfRank(0), "the gang restarts");
    });
  });
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  coordinator.join();
  EXPECT_TRUE(Session::IsVictim(job.ends[0])) << job.ends[0];
  EXPECT_THAT(Message(job.ends[0]), HasSubstr("the gang restarts"));
}

TEST_P(RecoveryTest, ASessionThatIsNotRecoverableHasAVictim) {
  Job job(GetParam(), 2, 8);
  job.coordinator = false;
  job.options.recoverable = false;
  job.Run({{.rank = 1, .step = 4, .point = Point::kHalfReduced}});
  EXPECT_TRUE(Session::IsVictim(job.ends[0])) << job.ends[0];
}

TEST(RecoverAloneTest, ThereIsNothingToRecoverFrom) {
  ClearRankEnvironment();
  auto session = *Session::Join({.recoverable = true});
  ASSERT_TRUE(session->Form({}).ok());
  auto reducer = *session->MakeReducer(kModel, {});
  const Status lost = WithReason(Unavailable("rank 1 is gone"), "PEER_LOST");
  EXPECT_FALSE(CanRecover(*session, lost));
  EXPECT_EQ(Recover(session.get(), lost, reducer.get(), {}).status(), lost);
  EXPECT_FALSE(Recover(session.get(), OkStatus(), reducer.get(), {}).ok());
}

}  // namespace
}  // namespace lockstep::worker::runtime
