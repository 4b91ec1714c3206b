#include "worker/data/shard_plan.h"

#include <algorithm>

#include "worker/data/permutation.h"

namespace lockstep::worker::data {

StatusOr<ShardPlan> ShardPlan::Create(const std::vector<uint64_t>& counts,
                                      const ShardPlanOptions& options) {
  constexpr uint64_t kMaxSamples = uint64_t{1} << 62;
  if (options.global_batch == 0 || options.global_batch > kMaxSamples) {
    return InvalidArgument("a global batch cannot have {} samples",
                           options.global_batch);
  }
  std::vector<uint64_t> starts = {0};
  starts.reserve(counts.size() + 1);
  for (const uint64_t count : counts) {
    if (count > kMaxSamples - starts.back()) {
      return InvalidArgument("the shards have more than {} samples",
                             kMaxSamples);
    }
    starts.push_back(starts.back() + count);
  }
  if (starts.back() == 0) {
    return InvalidArgument("the {} shards have no samples", counts.size());
  }
  return ShardPlan(std::move(starts), options);
}

uint64_t ShardPlan::steps_per_epoch() const {
  return (samples() - 1) / options_.global_batch + 1;
}

StatusOr<DataStep> ShardPlan::StepAt(DataCursor cursor) const {
  if (cursor.position > samples()) {
    return InvalidArgument(
        "position {} lies beyond the {} samples: the cursor belongs to other "
        "data",
        cursor.position, samples());
  }
  if (cursor.position == samples()) cursor = {cursor.epoch + 1, 0};
  DataStep step;
  step.begin = cursor;
  step.count = std::min(options_.global_batch, samples() - cursor.position);
  step.end = {cursor.epoch, cursor.position + step.count};
  if (step.end.position == samples()) step.end = {cursor.epoch + 1, 0};
  return step;
}

DataStripe ShardPlan::StripeOf(const DataStep& step, uint64_t rank,
                               uint64_t world) {
  const uint64_t share = step.count / world;
  const uint64_t extra = step.count % world;  // The first ranks take one more.
  DataStripe stripe;
  stripe.first = step.begin.position + rank * share + std::min(rank, extra);
  stripe.count = share + (rank < extra ? 1 : 0);
  return stripe;
}

std::vector<SampleRef> ShardPlan::Samples(uint64_t epoch,
                                          DataStripe stripe) const {
  std::vector<SampleRef> samples_of_stripe;
  samples_of_stripe.reserve(stripe.count);
  const Permutation permutation(samples(), options_.seed, epoch);
  for (uint64_t i = 0; i < stripe.count; ++i) {
    const uint64_t position = stripe.first + i;
    samples_of_stripe.push_back(
        Locate(options_.shuffle ? permutation(position) : position));
  }
  return samples_of_stripe;
}

SampleRef ShardPlan::Locate(uint64_t sample) const {
  // The last shard that starts at or before it; empty shards start where the
  // next one does and are passed over.
  const auto next = std::upper_bound(starts_.begin(), starts_.end(), sample);
  const auto shard = static_cast<size_t>(next - starts_.begin()) - 1;
  return {static_cast<uint32_t>(shard), sample - starts_[shard]};
}

}  // namespace lockstep::worker::data
