// For tests of recoveries of whole sessions: ranks as threads, a link and a
// backend as in a job, and a coordinator that replaces each rank that dies.
#ifndef LOCKSTEP_WORKER_RUNTIME_RECOVERY_TEST_UTIL_H_
#define LOCKSTEP_WORKER_RUNTIME_RECOVERY_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <algorithm>
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
#include "worker/collective/testing.h"
#include "worker/rank_link/testing.h"
#include "worker/runtime/recovery.h"
#include "worker/runtime/session.h"
#include "worker/runtime/session_test_util.h"

namespace lockstep::worker::runtime {

using rank_link::RankKey;
using rank_link::RankLinkServer;
using rank_link::TempDir;
using rank_link::TestDaemon;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr char kRecoveredJob[] = "mnist";
inline constexpr uint64_t kRecoveredGeneration = 3;
inline const std::vector<Parameter> kModel = {{"w", 5000}, {"b", 10}};

inline RankKey KeyOfRank(int rank) {
  return {kRecoveredJob, kRecoveredGeneration, rank};
}

inline v1::RankWelcome Welcome(int rank, int world_size, uint32_t recovery,
                               const std::set<int>& away = {}) {
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
  welcome.add_gpus(rank);
  for (const int each : away) welcome.add_away_ranks(each);
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

inline Model Undisturbed(int ranks, int64_t steps) {
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

// The end of a process that dies.
inline Status DeadRank() { return WithReason(Cancelled("dies"), "DEATH"); }

// What a rank's process is and does.
struct Rank {
  std::unique_ptr<Session> session;
  std::unique_ptr<Reducer> reducer;
  Model model;
  void* stream = nullptr;
  bool gradients_on_device = false;
  uint64_t position = 0;
  StepOrders orders;
  int recoveries = 0;
  size_t most_shards = 1;
  int64_t abandoned = 0;
  int64_t published = 0;
  Recovered last;
};

// In place of the rank's own, which is destroyed.
inline Status StepWithAnotherReducer(Rank* rank) {
  ReducerOptions reducing;
  reducing.start_step = rank->reducer->committed();
  reducing.device_stream = rank->gradients_on_device ? rank->stream : nullptr;
  rank->reducer.reset();
  LOCKSTEP_ASSIGN_OR_RETURN(rank->reducer,
                            rank->session->MakeReducer(kModel, reducing));
  StepInputs inputs;
  inputs.samples = 1;
  inputs.position = rank->position + 1;
  LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                            rank->reducer->Finish(inputs));
  EXPECT_TRUE(result.apply);
  return rank->reducer->Commit().status();
}

class Job {
 public:
  Job(std::string backend, int ranks, int64_t steps)
      : backend_(std::move(backend)), steps_(steps), ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      daemon_.Expect(KeyOfRank(r), RankNonce(r), Welcome(r, ranks, 0));
    }
  }
  ~Job() { ClearRankEnvironment(); }

  // The ranks go on without one that died, until it is ready again and they
  // have made two steps without it.
  void SetElastic() {
    options.elastic = true;
    small_steps_ = 2;
  }

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
    for (std::thread& thread : returning_) thread.join();
    return last;
  }

  // One that replaces no rank, as after a failure of the network.
  void OrderRecovery() {
    MutexLock lock(&mu_);
    BeginRecovery();
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
  // Of an elastic job: the others go on without a rank that died.
  bool goes_on = true;
  // Where ranks have a device: the weights lie there, and are computed on a
  // stream of each rank. The host writes on its own once that has run.
  std::function<void*()> make_stream;
  std::function<void(void*)> run_stream;
  bool gradients_on_device = false;
  bool learn_order = false;
  double clip_norm = 0;
  int64_t stop_at = 0;  // Rank 0 gets the order then.
  // Called when a rank has died, before the recovery begins.
  std::function<void()> before_replacing;
  // Called where a process that replaces a lost rank has formed, and is to make
  // its reducer.
  std::function<void(Session*)> before_reducer;
  // Called before Recover.
  std::function<void(Rank*, const Status& lost)> before_recover;
  // After the last step; all ranks, again where one is lost there. DeadRank():
  // this one dies.
  std::function<Status(Rank*)> at_end;
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
    if (before_replacing) before_replacing();
    {
      MutexLock lock(&mu_);
      const bool away = options.elastic && goes_on;
      // The others do not notice that one ends which is away already.
      const bool is_new = !away || away_.insert(r).second;
      if (is_new) BeginRecovery();
      if (away && is_new) {
        returning_.emplace_back(
            [this, r, left = newest_.load()] { TakeBack(r, left); });
      }
    }
    JoinRank(r, rank);
  }
  void BeginRecovery() {
    away_now_ = away_.size();
    ++recovery_;
    for (int each = 0; each < ranks_; ++each) {
      daemon_.Expect(KeyOfRank(each), RankNonce(each),
                     Welcome(each, ranks_, recovery_, away_));
    }
  }
  // When it waits, and the others have made some steps without it.
  void TakeBack(int r, int64_t left) {
    // Under the daemon's lock, which comes after mu_.
    EXPECT_TRUE(daemon_.WaitFor([&] {
      return newest_ >= left + small_steps_ &&
             std::any_of(daemon_.reports.begin(), daemon_.reports.end(),
                         [&](const auto& report) {
                           return report.first == KeyOfRank(r) &&
                                  report.second.parked() == recovery_ + 1;
                         });
    }));
    MutexLock lock(&mu_);
    away_.erase(r);
    BeginRecovery();
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
    reducing.clip_norm = clip_norm;
    if (recovering && before_reducer) before_reducer(session);
    if (make_stream) rank->stream = make_stream();
    rank->gradients_on_device = gradients_on_device;
    if (gradients_on_device) reducing.device_stream = rank->stream;
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
    if (Dies(*rank, step, Point::kInRecover)) return DeadRank();
    if (before_recover) before_recover(rank, lost);
    ReplicaState state;
    state.memory = {std::as_writable_bytes(std::span(rank->model.weights)),
                    std::as_writable_bytes(std::span(&rank->model.steps, 1))};
    state.save = [rank] { return std::to_string(rank->position); };
    state.load = [rank](std::string_view text) {
      rank->position = std::stoull(std::string(text));
      return OkStatus();
    };
    if (rank->stream != nullptr) {
      state.device = {{state.memory[0]}, rank->stream};
      state.memory.erase(state.memory.begin());
    }
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
      if (options.elastic && goes_on && reducer->committed() + 1 == steps_) {
        EXPECT_TRUE(daemon_.WaitFor([&] { return away_now_ == 0; }));
        // It hears of the return a moment later.
        EXPECT_TRUE(collective::AwaitTrue([&] {
          return rank->last.recovery == recovery_ ||
                 !CheckMembership(rank->session.get()).ok();
        }));
      }
      LOCKSTEP_RETURN_IF_ERROR(CheckMembership(rank->session.get()));
      LOCKSTEP_RETURN_IF_ERROR(Step(rank));
    }
    do {
      LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer->Settle());
      LOCKSTEP_RETURN_IF_ERROR(Obey(rank, orders));
    } while (reducer->in_flight());
    return at_end ? at_end(rank) : OkStatus();
  }

  static Status Backward(const Rank& rank, int shard) {
    for (size_t p : {size_t{1}, size_t{0}}) {
      const std::span<float> gradient = rank.reducer->gradient(p);
      const size_t first = p == 0 ? 0 : 5000;
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = rank.model.Gradient(first + i, shard, rank.position);
      }
      LOCKSTEP_RETURN_IF_ERROR(rank.reducer->Ready(p));
    }
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
    const std::vector<int> shards = MembershipOf(*rank->session).own_shards();
    rank->most_shards = std::max(rank->most_shards, shards.size());
    if (run_stream) run_stream(rank->stream);
    for (const int shard : shards) {
      LOCKSTEP_RETURN_IF_ERROR(Backward(*rank, shard));
      if (shard == shards.back()) break;
      LOCKSTEP_RETURN_IF_ERROR(reducer->NextShard(1, 1));
      // The sum of shards is made there.
      if (run_stream) run_stream(rank->stream);
    }
    if (Dies(*rank, step, Point::kHalfReduced)) return DeadRank();
    StepInputs inputs;
    inputs.samples = 1;
    inputs.loss_sum = 1;
    inputs.position = rank->position + 1;
    if (reducer->wants_state_hash()) {
      inputs.state_hash = static_cast<uint64_t>(model->weights[7]) * 3 + 1;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, reducer->Finish(inputs));
    EXPECT_TRUE(result.apply);
    EXPECT_EQ(result.samples, ranks_);
    if (Dies(*rank, step, Point::kAfterFinish)) return DeadRank();
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
    newest_ = std::max<int64_t>(newest_, reducer->committed());
    if (Dies(*rank, step, Point::kAfterCommit)) return DeadRank();
    return Obey(rank, *orders);
  }

  const std::string backend_;
  const int64_t steps_;
  const int ranks_;
  Mutex mu_;
  std::atomic<uint32_t> recovery_ = 0;
  std::vector<Death> deaths_;
  std::set<int> away_;
  std::atomic<size_t> away_now_ = 0;  // away_.size()
  std::atomic<int64_t> newest_ = 0;   // Steps that some rank has committed.
  int64_t small_steps_ = 0;
  std::vector<std::thread> returning_;
};

// All ranks end well, with the weights of a run without deaths.
inline void ExpectUndisturbed(const Job& job, const std::vector<Rank>& ranks,
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

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_RECOVERY_TEST_UTIL_H_
