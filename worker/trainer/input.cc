#include "worker/trainer/input.h"

namespace lockstep::worker::trainer {
namespace {

task::InputCounters InputOf(const data::Prefetcher& input, size_t depth) {
  const data::PrefetcherCounters counters = input.counters();
  task::InputCounters shown;
  shown.bytes = counters.bytes;
  shown.corrupt_records = counters.corrupt;
  shown.queue_depth = counters.queued;
  shown.queue_capacity = depth;
  shown.read_seconds = ToSeconds(counters.reading);
  shown.decode_seconds = ToSeconds(counters.decoding);
  return shown;
}

}  // namespace

StatusOr<std::unique_ptr<SampleInput>> SampleInput::Start(
    std::shared_ptr<const data::Dataset> dataset, const data::ShardPlan& plan,
    const data::PrefetcherOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<data::Prefetcher> prefetcher,
      data::Prefetcher::Start(std::move(dataset), plan, options));
  return std::unique_ptr<SampleInput>(
      new SampleInput(std::move(prefetcher), options.depth));
}

Status SampleInput::Next(runtime::Progress* progress) {
  const Status read = NextBatch(prefetcher_.get(), &batch_);
  // Also of what could not be read: it is this rank's last report.
  progress->SetInput(InputOf(*prefetcher_, depth_));
  return read;
}

}  // namespace lockstep::worker::trainer
