#include "worker/data/prefetcher.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace lockstep::worker::data {
namespace {

constexpr uint64_t kMaxBatchBytes = uint64_t{4} << 30;

Status CheckPrefetcher(const PrefetcherOptions& options,
                       const ShardPlan& plan) {
  if (options.world == 0 || options.rank >= options.world) {
    return InvalidArgument("rank {} is out of range for {} ranks", options.rank,
                           options.world);
  }
  if (options.depth < 1 || options.depth > 1024) {
    return InvalidArgument("the prefetch depth {} is not in 1 to 1024",
                           options.depth);
  }
  if (options.threads < 1 || options.threads > 256) {
    return InvalidArgument(
        "the number of prefetch threads {} is not in 1 to 256",
        options.threads);
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckShape(options.shape));
  const uint64_t step = std::min(plan.options().global_batch, plan.samples());
  const uint64_t most = (step - 1) / options.world + 1;
  if (most > kMaxBatchBytes / options.shape.bytes()) {
    return InvalidArgument(
        "a batch of {} images of {} on one rank is more than {} bytes", most,
        FormatShape(options.shape), kMaxBatchBytes);
  }
  return plan.StepAt(options.start).status();
}

bool IsCorrupt(const Status& status) {
  return status.code() == StatusCode::kDataLoss ||
         status.code() == StatusCode::kInvalidArgument;
}

}  // namespace

StatusOr<std::unique_ptr<Prefetcher>> Prefetcher::Start(
    std::shared_ptr<const Dataset> dataset, ShardPlan plan,
    const PrefetcherOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPrefetcher(options, plan));
  std::unique_ptr<Prefetcher> prefetcher(
      new Prefetcher(std::move(dataset), std::move(plan), options));
  for (size_t i = 0; i < options.threads; ++i) {
    try {
      prefetcher->threads_.emplace_back(&Prefetcher::Work, prefetcher.get());
    } catch (const std::system_error& error) {
      return ResourceExhausted("starting a prefetch thread: {}", error.what());
    }
  }
  return prefetcher;
}

Prefetcher::Prefetcher(std::shared_ptr<const Dataset> dataset, ShardPlan plan,
                       const PrefetcherOptions& options)
    : dataset_(std::move(dataset)),
      plan_(std::move(plan)),
      options_(options),
      slots_(options.depth),
      claim_cursor_(options.start) {
  // A cursor at the end of an epoch is the beginning of the next.
  if (claim_cursor_.position == plan_.samples()) {
    claim_cursor_ = {claim_cursor_.epoch + 1, 0};
  }
}

Prefetcher::~Prefetcher() {
  Stop();
  for (std::thread& thread : threads_) thread.join();
}

void Prefetcher::Stop() {
  stopping_ = true;
  // The lock prevents a lost wakeup between a check and its wait.
  MutexLock lock(&mu_);
  slot_free_.NotifyAll();
  slot_ready_.NotifyAll();
}

bool Prefetcher::AtEnd() const {
  return claim_cursor_.epoch >= options_.end_epoch;
}

Status Prefetcher::Next(Batch* batch, MonoTime deadline) {
  const MonoTime entered = MonotonicNow();
  MutexLock lock(&mu_);
  const uint64_t number = consumed_;
  Slot& slot = slots_[number % slots_.size()];
  Status status;
  while (!slot.ready && status.ok()) {
    if (stopping_) {
      status = Cancelled("the prefetcher was stopped");
    } else if (claimed_ == number && AtEnd()) {
      status = OutOfRange("epoch {} has ended", options_.end_epoch);
    } else if (MonotonicNow() >= deadline) {
      status = DeadlineExceeded(
          "the samples of step {} since the start were not read in {}", number,
          FormatDuration(MonotonicNow() - entered));
    } else {
      slot_ready_.WaitUntil(&mu_, deadline);
    }
  }
  counters_.waited += MonotonicNow() - entered;
  if (stopping_) return Cancelled("the prefetcher was stopped");
  LOCKSTEP_RETURN_IF_ERROR(status);
  // A failed slot is never handed out, so every later call finds it again.
  LOCKSTEP_RETURN_IF_ERROR(slot.status);
  std::swap(*batch, slot.batch);
  slot.ready = false;
  --counters_.queued;
  ++consumed_;
  ++counters_.steps;
  counters_.samples += batch->count;
  slot_free_.NotifyOne();
  return OkStatus();
}

PrefetcherCounters Prefetcher::counters() const {
  MutexLock lock(&mu_);
  PrefetcherCounters counters = counters_;
  counters.bytes = bytes_read_;
  return counters;
}

bool Prefetcher::TakeClaim(Claim* claim) {
  MutexLock lock(&mu_);
  while (!stopping_ && !AtEnd() && claimed_ - consumed_ == slots_.size()) {
    // Ended by Next or by Stop, which the destructor calls.
    slot_free_.Wait(&mu_);
  }
  if (stopping_ || AtEnd()) return false;
  // Cannot fail: Start has checked the cursor, and the plan's own follow.
  const StatusOr<DataStep> step = plan_.StepAt(claim_cursor_);
  if (!step.ok()) return false;
  claim->step = *step;
  claim->number = claimed_++;
  claim_cursor_ = step->end;
  // Next may wait for a step that turned out to be the last one.
  if (AtEnd()) slot_ready_.NotifyAll();
  claim->batch = std::move(slots_[claim->number % slots_.size()].batch);
  return true;
}

void Prefetcher::Work() {
  std::string buffer;
  Claim claim;
  while (TakeClaim(&claim)) {
    Times times;
    Status status = Fill(claim.step, &claim.batch, &buffer, &times);
    MutexLock lock(&mu_);
    counters_.reading += times.reading;
    counters_.decoding += times.decoding;
    if (IsCorrupt(status)) ++counters_.corrupt;
    // A step that failed is never handed out.
    if (status.ok()) ++counters_.queued;
    Slot& slot = slots_[claim.number % slots_.size()];
    slot.batch = std::move(claim.batch);
    slot.status = std::move(status);
    slot.ready = true;
    slot_ready_.NotifyAll();
  }
}

Status Prefetcher::Fill(const DataStep& step, Batch* batch, std::string* buffer,
                        Times* times) {
  const DataStripe stripe =
      ShardPlan::StripeOf(step, options_.rank, options_.world);
  const uint64_t image_bytes = options_.shape.bytes();
  batch->count = stripe.count;
  batch->global_count = step.count;
  batch->begin = step.begin;
  batch->end = step.end;
  batch->pixels.resize(stripe.count * image_bytes);
  batch->labels.resize(stripe.count);
  const std::vector<SampleRef> samples =
      plan_.Samples(step.begin.epoch, stripe);
  MonoTime since = MonotonicNow();
  const auto lap = [&since](Duration* total) {
    const MonoTime now = MonotonicNow();
    *total += now - since;
    since = now;
  };
  for (size_t i = 0; i < samples.size(); ++i) {
    if (stopping_) return Cancelled("the prefetcher was stopped");
    LOCKSTEP_ASSIGN_OR_RETURN(const LabelledImage image,
                              dataset_->Read(samples[i], buffer));
    lap(&times->reading);
    bytes_read_ += image.encoded.size();
    const auto label = static_cast<uint32_t>(image.label);
    if (options_.classes != 0 && label >= options_.classes) {
      return InvalidArgument("{}: label {} is out of range for {} classes",
                             dataset_->Describe(samples[i]), label,
                             options_.classes);
    }
    batch->labels[i] = image.label;
    const Status decoded =
        DecodeTo(image, options_.shape, batch->pixels.data() + i * image_bytes);
    if (!decoded.ok()) {
      return Annotate(decoded, dataset_->Describe(samples[i]));
    }
    lap(&times->decoding);
  }
  return OkStatus();
}

}  // namespace lockstep::worker::data
