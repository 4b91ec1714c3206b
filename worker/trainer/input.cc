#include "worker/trainer/input.h"

#include <utility>

namespace lockstep::worker::trainer {
namespace {

void AddInput(const data::Prefetcher& input, size_t depth,
              task::InputCounters* sum) {
  const data::PrefetcherCounters counters = input.counters();
  sum->bytes += counters.bytes;
  sum->corrupt_records += counters.corrupt;
  sum->queue_depth += counters.queued;
  sum->queue_capacity += depth;
  sum->read_seconds += ToSeconds(counters.reading);
  sum->decode_seconds += ToSeconds(counters.decoding);
}

}  // namespace

StatusOr<std::unique_ptr<SampleInput>> SampleInput::Start(
    std::shared_ptr<const data::Dataset> dataset, const data::ShardPlan& plan,
    const data::PrefetcherOptions& options, std::span<const int> shards,
    const task::InputCounters& before) {
  std::vector<std::unique_ptr<data::Prefetcher>> prefetchers;
  for (const int shard : shards) {
    data::PrefetcherOptions own = options;
    own.rank = static_cast<uint64_t>(shard);
    LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<data::Prefetcher> prefetcher,
                              data::Prefetcher::Start(dataset, plan, own));
    prefetchers.push_back(std::move(prefetcher));
  }
  return std::unique_ptr<SampleInput>(
      new SampleInput(std::move(prefetchers), options.depth, before));
}

Status SampleInput::Next(size_t i, runtime::Progress* progress) {
  const Status read = NextBatch(prefetchers_[i].get(), &batch_);
  // Also of what could not be read: it is this rank's last report.
  progress->SetInput(counters());
  return read;
}

task::InputCounters SampleInput::counters() const {
  task::InputCounters sum = before_;
  // Of now only.
  sum.queue_depth = 0;
  sum.queue_capacity = 0;
  for (const std::unique_ptr<data::Prefetcher>& prefetcher : prefetchers_) {
    AddInput(*prefetcher, depth_, &sum);
  }
  return sum;
}

}  // namespace lockstep::worker::trainer
