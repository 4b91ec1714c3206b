#include "worker/trainer/evaluation.h"

#include <array>
#include <memory>
#include <utility>

#include "common/base/fault_point.h"
#include "worker/runtime/recovery.h"
#include "worker/trainer/input.h"

namespace lockstep::worker::trainer {
namespace {

constexpr uint64_t kBatch = 250;  // Of a shard.
// Samples, right ones, loss.
constexpr size_t kNumbers = 3;

StatusOr<std::unique_ptr<data::Prefetcher>> ReadShard(const JobData& data,
                                                      int64_t classes,
                                                      uint64_t world,
                                                      uint64_t shard) {
  data::ShardPlanOptions plan_options;
  plan_options.global_batch = kBatch * world;
  plan_options.shuffle = false;
  LOCKSTEP_ASSIGN_OR_RETURN(
      data::ShardPlan plan,
      data::ShardPlan::Create(data.eval->counts(), plan_options));
  data::PrefetcherOptions options;
  options.rank = shard;
  options.world = world;
  options.end_epoch = 1;
  options.shape = data.shape;
  options.classes = static_cast<uint32_t>(classes);
  return data::Prefetcher::Start(data.eval, std::move(plan), options);
}

// Counts stay exact in a double up to 2^53.
StatusOr<std::array<double, kNumbers>> EvaluateShard(
    Replica* replica, data::Prefetcher* reader,
    const std::function<void()>& after_batch) {
  EvaluationSums all;
  data::Batch batch;
  while (true) {
    const Status status = NextBatch(reader, &batch);
    if (status.code() == StatusCode::kOutOfRange) break;
    LOCKSTEP_RETURN_IF_ERROR(Annotate(status, "evaluating"));
    if (batch.count > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(const EvaluationSums sums,
                                replica->Evaluate(batch));
      all.samples += sums.samples;
      all.correct += sums.correct;
      all.loss += sums.loss;
    }
    if (after_batch) after_batch();
  }
  return std::array<double, kNumbers>{static_cast<double>(all.samples),
                                      static_cast<double>(all.correct),
                                      all.loss};
}

}  // namespace

StatusOr<std::vector<double>> EvaluateShards(
    Replica* replica, const JobData& data, int64_t classes, int world,
    std::span<const int> shards, const std::function<void()>& after_batch) {
  std::vector<double> numbers(kNumbers * static_cast<size_t>(world));
  for (const int shard : shards) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::unique_ptr<data::Prefetcher> reader,
        ReadShard(data, classes, static_cast<uint64_t>(world),
                  static_cast<uint64_t>(shard)));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto own, EvaluateShard(replica, reader.get(), after_batch));
    for (size_t k = 0; k < kNumbers; ++k) {
      numbers[kNumbers * static_cast<size_t>(shard) + k] = own[k];
    }
  }
  return numbers;
}

StatusOr<Evaluation> Evaluate(runtime::Session* session, Replica* replica,
                              const JobData& data, int64_t classes,
                              bool elastic) {
  session->Enter(runtime::Phase::kEvaluation);
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::vector<double> numbers,
      EvaluateShards(replica, data, classes, session->world_size(),
                     runtime::MembershipOf(*session).own_shards(),
                     [session] { session->Publish(); }));
  // Where the job is elastic, each number comes from one rank, so that no sum
  // over ranks is rounded. Else the backend adds up.
  if (!elastic) {
    const auto own = numbers.begin() +
                     static_cast<ptrdiff_t>(kNumbers) *
                         runtime::MembershipOf(*session).own_shards().front();
    numbers = std::vector<double>(own, own + kNumbers);
  }
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("evaluation.sum.before"));
  LOCKSTEP_RETURN_IF_ERROR(session->AllReduceSum(numbers));
  session->Enter(runtime::Phase::kOther);
  std::array<double, kNumbers> sums = {};
  for (size_t k = 0; k < numbers.size(); ++k) sums[k % kNumbers] += numbers[k];
  Evaluation all;
  all.samples = static_cast<uint64_t>(sums[0]);
  if (all.samples != data.eval->samples()) {
    return Internal("evaluated {} of {} held-out samples", all.samples,
                    data.eval->samples());
  }
  all.accuracy = sums[1] / sums[0];
  all.loss = sums[2] / sums[0];
  return all;
}

}  // namespace lockstep::worker::trainer
