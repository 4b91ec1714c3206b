#include "worker/trainer/evaluation.h"

#include <array>
#include <memory>
#include <utility>

#include "worker/trainer/input.h"

namespace lockstep::worker::trainer {
namespace {

constexpr uint64_t kBatch = 250;  // Per rank.

StatusOr<std::unique_ptr<data::Prefetcher>> ReadAll(
    const runtime::Session& session, const JobData& data, int64_t classes) {
  const auto world = static_cast<uint64_t>(session.world_size());
  data::ShardPlanOptions plan_options;
  plan_options.global_batch = kBatch * world;
  plan_options.shuffle = false;
  LOCKSTEP_ASSIGN_OR_RETURN(
      data::ShardPlan plan,
      data::ShardPlan::Create(data.eval->counts(), plan_options));
  data::PrefetcherOptions options;
  options.rank = static_cast<uint64_t>(session.rank());
  options.world = world;
  options.end_epoch = 1;
  options.shape = data.shape;
  options.classes = static_cast<uint32_t>(classes);
  return data::Prefetcher::Start(data.eval, std::move(plan), options);
}

}  // namespace

StatusOr<Evaluation> Evaluate(runtime::Session* session, Replica* replica,
                              const JobData& data, int64_t classes) {
  session->Enter(runtime::Phase::kEvaluation);
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<data::Prefetcher> reader,
                            ReadAll(*session, data, classes));
  EvaluationSums mine;
  data::Batch batch;
  while (true) {
    const Status status = NextBatch(reader.get(), &batch);
    if (status.code() == StatusCode::kOutOfRange) break;
    LOCKSTEP_RETURN_IF_ERROR(Annotate(status, "evaluating"));
    if (batch.count > 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(const EvaluationSums sums,
                                replica->Evaluate(batch));
      mine.samples += sums.samples;
      mine.correct += sums.correct;
      mine.loss += sums.loss;
    }
    session->Publish();
  }
  // Counts stay exact in a double up to 2^53.
  std::array<double, 3> sums = {static_cast<double>(mine.samples),
                                static_cast<double>(mine.correct), mine.loss};
  LOCKSTEP_RETURN_IF_ERROR(session->AllReduceSum(sums));
  session->Enter(runtime::Phase::kOther);
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
