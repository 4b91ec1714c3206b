// The reducer of an elastic job: the same bits at each number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"
#include "worker/runtime/gradients.h"
#include "worker/runtime/reducer_test_util.h"

namespace lockstep::worker::runtime {
namespace {

using collective::Communicator;
using collective::MapRendezvousStore;
using ::testing::HasSubstr;

constexpr int kShards = 4;
constexpr double kClip = 3;

std::vector<std::vector<float>> GradientsOf(int shard, int64_t step) {
  return RandomGradients(static_cast<uint32_t>(step * 100 + shard));
}

// Per element from the first shard to the last.
std::vector<std::vector<float>> SumOfShards(int64_t step) {
  std::vector<std::vector<float>> sum = GradientsOf(0, step);
  for (int shard = 1; shard < kShards; ++shard) {
    const auto more = GradientsOf(shard, step);
    for (size_t p = 0; p < sum.size(); ++p) {
      for (size_t i = 0; i < sum[p].size(); ++i) sum[p][i] += more[p][i];
    }
  }
  return sum;
}

double LossOf(int shard) { return 0.1 * (shard + 1); }

// A rank of the job: its reducer outlives the communicators.
class ElasticRank {
 public:
  explicit ElasticRank(int rank) : rank_(rank) {
    progress_ = *Progress::Create("", rank, 1);
    SteppedReducerOptions options;
    options.elastic = true;
    options.membership.world_size = kShards;
    options.progress = progress_.get();
    options.reducer.bucket_bytes = 4096;
    options.reducer.state_hash_interval = 0;
    options.reducer.clip_norm = kClip;
    options.operation_timeout = std::chrono::seconds(20);
    reducer_ = *MakeSteppedReducer(kParameters, std::move(options));
  }

  void Bind(std::unique_ptr<Communicator> communicator,
            const Membership& membership) {
    communicator_ = std::move(communicator);
    membership_ = membership;
    const Status bound = reducer_->Rebind(communicator_.get(), membership_);
    ASSERT_TRUE(bound.ok()) << bound;
  }
  void Resume(const std::string& agreed, uint64_t number) {
    const auto orders = reducer_->Resume(agreed, number, 6);
    ASSERT_TRUE(orders.ok()) << orders.status();
  }
  void Leave() {
    EXPECT_TRUE(reducer_->Unbind().ok());
    communicator_.reset();
  }

  void StepOfShard(int shard) {
    const auto gradients = GradientsOf(shard, reducer_->step());
    for (size_t i = gradients.size(); i-- > 0;) {
      const Status put = reducer_->Put(i, gradients[i]);
      EXPECT_TRUE(put.ok()) << put;
    }
  }
  // All own shards but the last.
  void Begin() {
    const std::vector<int>& own = membership_.own_shards();
    for (size_t i = 0; i + 1 < own.size(); ++i) {
      StepOfShard(own[i]);
      const Status next = reducer_->NextShard(own[i] + 1, LossOf(own[i]));
      ASSERT_TRUE(next.ok()) << next;
    }
  }
  StatusOr<StepResult> End() {
    const int last = membership_.own_shards().back();
    StepOfShard(last);
    StepInputs inputs;
    inputs.samples = last + 1;
    inputs.loss_sum = LossOf(last);
    return reducer_->Finish(inputs);
  }
  StepResult Step() {
    const auto expected = SumOfShards(reducer_->step());
    Begin();
    const StatusOr<StepResult> result = End();
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    EXPECT_TRUE(result->apply);
    for (size_t p = 0; p < expected.size(); ++p) {
      const std::span<const float> got = reducer_->gradient(p);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected[p].begin()))
          << "parameter " << p << " of rank " << rank_ << " in step "
          << reducer_->step() << " with " << membership_.size() << " members";
    }
    EXPECT_TRUE(reducer_->Commit().ok());
    return *result;
  }
  RecoverableReducer* reducer() { return reducer_.get(); }
  const Membership& membership() const { return membership_; }

 private:
  const int rank_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Communicator> communicator_;
  Membership membership_;
  std::unique_ptr<RecoverableReducer> reducer_;
};

// Stands for a backend that has no all-to-all.
class WithoutAllToAll final : public collective::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  bool HasAllToAll() const override { return false; }
};
constexpr const char* kWithout = "without_all_to_all";

class ElasticReducerTest : public ::testing::TestWithParam<const char*> {
 protected:
  ElasticReducerTest() { ::signal(SIGPIPE, SIG_IGN); }

  // The members' communicator: over hierarchical, ranks 0 and 1 are on one host
  // and the others on another, so where a rank is away these are unequal.
  static std::unique_ptr<Communicator> Form(const Membership& membership,
                                            MapRendezvousStore* store) {
    const bool without = GetParam() == std::string(kWithout);
    const std::string several = without ? "shm" : GetParam();
    const std::string backend = membership.size() == 1 ? "self" : several;
    collective::CommunicatorOptions options = collective::TestOptionsOf(
        backend, membership.place, membership.size(), store);
    const int rank = membership.members[membership.place];
    options.host = GetParam() == std::string("hierarchical") && rank > 1
                       ? "second"
                       : "first";
    auto formed = collective::FormCommunicator(options);
    EXPECT_TRUE(formed.ok()) << formed.status();
    if (without) {
      return std::make_unique<WithoutAllToAll>(*std::move(formed));
    }
    EXPECT_TRUE((*formed)->HasAllToAll());
    return *std::move(formed);
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ElasticReducerTest,
                         ::testing::Values("shm", "tcp", "hierarchical",
                                           kWithout),
                         [](const auto& info) { return info.param; });

TEST_P(ElasticReducerTest, HasTheSameBitsAtEachSize) {
  // Ranks that are away, by phase; a rank that was away begins anew.
  const std::vector<std::vector<int>> phases = {
      {}, {1}, {1, 3}, {1, 2, 3}, {0, 1, 2}, {0, 2}, {2}, {}};
  std::vector<std::unique_ptr<ElasticRank>> ranks(kShards);
  std::string agreed;
  std::vector<double> losses;
  std::vector<double> norms;
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    MapRendezvousStore store;
    Mutex mu;
    collective::SpawnRanks(kShards, [&](int r) {
      const Membership membership = MembersWithout(phases[phase], kShards, r);
      if (membership.place < 0) {
        ranks[r].reset();
        return;
      }
      const bool is_new = ranks[r] == nullptr;
      if (is_new) ranks[r] = std::make_unique<ElasticRank>(r);
      std::vector<const float*> places;
      for (size_t i = 0; i < kParameters.size(); ++i) {
        places.push_back(ranks[r]->reducer()->gradient(i).data());
      }
      ranks[r]->Bind(Form(membership, &store), membership);
      for (size_t i = 0; i < kParameters.size(); ++i) {
        EXPECT_EQ(ranks[r]->reducer()->gradient(i).data(), places[i]);
      }
      if (phase > 0) ranks[r]->Resume(agreed, phase);
      StepResult result = ranks[r]->Step();
      result = ranks[r]->Step();
      EXPECT_EQ(result.samples, 1 + 2 + 3 + 4);
      MutexLock lock(&mu);
      losses.push_back(result.loss);
      if (membership.place == 0) norms.push_back(result.gradient_norm);
    });
    for (const auto& rank : ranks) {
      if (rank == nullptr) continue;
      agreed = rank->reducer()->Agreed();
      rank->Leave();
    }
  }
  EXPECT_THAT(losses, ::testing::Each(losses[0]));
  // The last step of each phase has gradients of its own; the norm has the bits
  // of a sum over the parts of all shards.
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    const auto sum = SumOfShards(static_cast<int64_t>(2 * phase + 2));
    double squares = 0;
    for (size_t s = 0; s < kShards; ++s) {
      double part = 0;
      for (const std::vector<float>& g : sum) {
        const size_t from = g.size() * s / kShards;
        const size_t to = g.size() * (s + 1) / kShards;
        part += SumOfSquares(std::span(g).subspan(from, to - from));
      }
      squares += part;
    }
    EXPECT_EQ(norms[phase], std::sqrt(squares)) << phase;
  }
}

TEST_P(ElasticReducerTest, AnUnfiniteShardSkipsTheStepOfAll) {
  for (const int bad : {0, 1, 3}) {
    MapRendezvousStore store;
    collective::SpawnRanks(kShards, [&](int r) {
      const Membership membership =
          MembersWithout(std::vector<int>{3}, kShards, r);
      if (membership.place < 0) return;
      ElasticRank rank(r);
      rank.Bind(Form(membership, &store), membership);
      rank.reducer()->ZeroGradients();
      for (const int shard : membership.own_shards()) {
        rank.StepOfShard(shard);
        const bool last = shard == membership.own_shards().back();
        const double loss =
            shard == bad ? std::numeric_limits<double>::infinity() : 1;
        if (!last) {
          EXPECT_TRUE(rank.reducer()->NextShard(1, loss).ok());
          continue;
        }
        StepInputs inputs;
        inputs.samples = 1;
        inputs.loss_sum = loss;
        const auto result = rank.reducer()->Finish(inputs);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_TRUE(result->skipped) << "shard " << bad;
      }
      EXPECT_TRUE(rank.reducer()->Commit().ok());
      // The next one is good again.
      rank.Step();
    });
  }
}

TEST_P(ElasticReducerTest, EachShardOfARankMustBeGiven) {
  MapRendezvousStore store;
  collective::SpawnRanks(1, [&](int) {
    ElasticRank rank(2);
    const Membership alone =
        MembersWithout(std::vector<int>{0, 1, 3}, kShards, 2);
    rank.Bind(Form(alone, &store), alone);
    rank.StepOfShard(2);
    const Status early = rank.reducer()->Finish({}).status();
    EXPECT_THAT(std::string(Message(early)),
                HasSubstr("1 of this rank's 4 shards"));
  });
}

TEST(ElasticReducerOptionsTest, RefusesWhatRoundsOnTheWay) {
  SteppedReducerOptions options;
  options.elastic = true;
  options.membership.world_size = 2;
  const auto progress = *Progress::Create("", 0, 1);
  options.progress = progress.get();
  options.reducer.bf16_wire = true;
  const auto made = MakeSteppedReducer(kParameters, std::move(options));
  EXPECT_THAT(std::string(Message(made.status())), HasSubstr("fp32"));
}

TEST(ElasticReducerOptionsTest, TakesNoStepWhileItIsAway) {
  ElasticRank rank(1);
  const Status status = rank.reducer()->Finish({}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
}

}  // namespace
}  // namespace lockstep::worker::runtime
