#include "worker/runtime/gradient_buckets.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/runtime/step_tail.h"

namespace lockstep::worker::runtime {
StatusOr<std::unique_ptr<GradientBuckets>> GradientBuckets::Create(
    collective::Communicator* communicator,
    const std::vector<Parameter>& parameters, const ReducerOptions& options,
    const collective::BucketSizes& sizes, int shards) {
  std::unique_ptr<GradientBuckets> buckets(
      new GradientBuckets(communicator, shards, parameters, options, sizes));
  LOCKSTEP_ASSIGN_OR_RETURN(
      buckets->plan_,
      PlanGradients(parameters, options, buckets->memory_.size(), sizes));
  LOCKSTEP_RETURN_IF_ERROR(buckets->memory_.Allocate(buckets->plan_));
  if (options.bf16_wire) {
    buckets->wide_.resize(buckets->memory_.BytesOf(buckets->plan_) /
                          sizeof(uint16_t));
  }
  buckets->Lay();
  return buckets;
}

Status GradientBuckets::Rebind(collective::Communicator* communicator) {
  LOCKSTEP_RETURN_IF_ERROR(memory_.Rebind(communicator));
  std::fill(wide_.begin(), wide_.end(), 0.0f);
  BeginStep();
  return OkStatus();
}

// Gaps are where alignment needs them, after each gradient: whatever the
// order, the sum is the same.
void GradientBuckets::Lay() {
  char* const base = memory_.data();
  begin_.clear();
  size_t begin = 0;
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const collective::BucketLayout& bucket = plan_.buckets[b];
    begin_.push_back(begin);
    for (const collective::BucketEntry& entry : bucket.entries) {
      char* const at = base + begin + entry.offset_bytes;
      const size_t i = entry.parameter;
      bucket_of_[i] = b;
      if (options_.bf16_wire) {
        auto* wire = reinterpret_cast<uint16_t*>(at);
        wire_[i] = {wire, entry.count};
        gradients_[i] = {
            wide_.data() + (wire - reinterpret_cast<uint16_t*>(base)),
            entry.count};
      } else {
        gradients_[i] = {reinterpret_cast<float*>(at), entry.count};
      }
    }
    begin += bucket.bytes + memory_.room_behind();
  }
  if (!memory_.tail_apart()) {
    memory_.SetTail(begin_.back() + plan_.control_offset_bytes,
                    plan_.control_words);
  }
  BeginStep();
}

Status GradientBuckets::Rearrange(std::vector<uint32_t> order) {
  ReducerOptions options = options_;
  options.order = std::move(order);
  LOCKSTEP_ASSIGN_OR_RETURN(
      collective::BucketPlan plan,
      PlanGradients(parameters_, options, memory_.size(), sizes_));
  const size_t bytes = memory_.BytesOf(plan);
  if (bytes > memory_.buffer()->bytes) {
    return Internal("gradients take {} bytes in another order, not {}", bytes,
                    memory_.buffer()->bytes);
  }
  plan_ = std::move(plan);
  options_ = std::move(options);
  memory_.Clear();
  std::fill(wide_.begin(), wide_.end(), 0.0f);
  Lay();
  return OkStatus();
}

void GradientBuckets::Zero() {
  for (const std::span<float> gradient : gradients_) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
  }
}

collective::Slice GradientBuckets::slice(size_t bucket) const {
  const collective::BucketLayout& layout = plan_.buckets[bucket];
  return {memory_.buffer(), begin_[bucket] / SizeOf(layout.type), layout.count,
          layout.type};
}

std::span<float> GradientBuckets::room(size_t bucket) {
  return {
      reinterpret_cast<float*>(memory_.data()) + begin_[bucket] / sizeof(float),
      (plan_.buckets[bucket].bytes + memory_.room_behind()) / sizeof(float)};
}

collective::Slice GradientBuckets::whole() const {
  const size_t bytes = begin_.back() + plan_.buckets.back().bytes;
  return {memory_.buffer(), 0, bytes / sizeof(float),
          collective::DataType::kFloat32};
}

void GradientStates::Begin(const collective::BucketPlan& plan) {
  std::fill(state_.begin(), state_.end(), State());
  missing_.resize(plan.buckets.size());
  for (size_t b = 0; b < missing_.size(); ++b) {
    missing_[b] = plan.buckets[b].entries.size();
  }
  nonfinite_ = false;
}

void GradientBuckets::BeginStep() { states_.Begin(plan_); }

void GradientBuckets::Add(size_t i, std::span<const float> gradient) {
  if (states_.MarkAdded(i)) {
    AddFinite(gradient, gradients_[i]);
  } else if (!gradient.empty()) {
    std::memcpy(gradients_[i].data(), gradient.data(), gradient.size_bytes());
  }
}

void GradientBuckets::SetReady(size_t i) {
  states_.MarkReady(i, bucket_of_[i]);
}

void GradientBuckets::AddLast(size_t i, std::span<const float> gradient) {
  const bool more = states_.MarkAdded(i);
  bool finite = true;
  if (more) {
    finite = AddFinite(gradient, gradients_[i]);
    if (options_.bf16_wire) finite = RoundFinite(gradients_[i], wire_[i]);
  } else if (options_.bf16_wire) {
    finite = RoundFinite(gradient, wire_[i]);
  } else if (gradient.data() == gradients_[i].data()) {
    finite = AllFinite(gradient);
  } else {
    finite = CopyFinite(gradient, gradients_[i]);
  }
  states_.MarkFinite(finite);
  states_.MarkLookedAt(i);
  SetReady(i);
}

void GradientBuckets::SetAllReady() {
  for (size_t i = 0; i < parameters(); ++i) {
    if (!states_.ready(i)) SetReady(i);
  }
}

void GradientBuckets::Seal(size_t bucket) {
  for (const collective::BucketEntry& entry : plan_.buckets[bucket].entries) {
    const size_t i = entry.parameter;
    if (states_.MarkLookedAt(i)) continue;
    const bool finite = options_.bf16_wire
                            ? RoundFinite(gradients_[i], wire_[i])
                            : AllFinite(gradients_[i]);
    states_.MarkFinite(finite);
  }
}

void GradientBuckets::Take() {
  if (!options_.bf16_wire) return;
  for (size_t i = 0; i < wire_.size(); ++i) Widen(wire_[i], gradients_[i]);
}

double SquaresOfPart(GradientBuckets* buckets, int rank, int size) {
  double sum = 0;
  for (size_t i = 0; i < buckets->parameters(); ++i) {
    const std::span<const float> gradient = buckets->gradient(i);
    const size_t begin =
        gradient.size() * static_cast<size_t>(rank) / static_cast<size_t>(size);
    const size_t end = gradient.size() * static_cast<size_t>(rank + 1) /
                       static_cast<size_t>(size);
    sum += SumOfSquares(gradient.subspan(begin, end - begin));
  }
  return sum;
}

}  // namespace lockstep::worker::runtime
