#include "worker/runtime/device_gradients.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::worker::runtime {

Status DeviceGradients::Fit() {
  const size_t bytes = buckets_->buckets() * sizeof(double);
  if (sums_ == nullptr || sums_->bytes < bytes) {
    LOCKSTEP_ASSIGN_OR_RETURN(sums_, communicator_->Allocate(bytes));
  }
  Zero();
  return status_;
}

void DeviceGradients::Unbind() {
  looks_.clear();
  communicator_ = nullptr;
  sums_ = nullptr;
  status_ = OkStatus();
}

Status DeviceGradients::Rebind(collective::Communicator* communicator) {
  communicator_ = communicator;
  return Fit();
}

void DeviceGradients::Zero() {
  if (communicator_ == nullptr) return;
  const Status status =
      communicator_->device_memory()->Clear(buckets_->whole(), stream_);
  if (status_.ok()) status_ = status;
}

Status DeviceGradients::StartSquares(const collective::Slice& of) {
  LOCKSTEP_RETURN_IF_ERROR(status_);
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<collective::Work> work,
      communicator_->device_memory()->StartSumOfSquares(
          of, {sums_, looks_.size(), 1, collective::DataType::kFloat64},
          stream_));
  looks_.push_back(std::move(work));
  return OkStatus();
}

Status DeviceGradients::StartLook(size_t bucket) {
  return StartSquares(buckets_->slice(bucket));
}

StatusOr<bool> DeviceGradients::AllFinite(MonoTime deadline) {
  for (const std::unique_ptr<collective::Work>& look : looks_) {
    LOCKSTEP_RETURN_IF_ERROR(look->Wait(deadline));
  }
  const auto* const sums = static_cast<const double*>(sums_->data);
  finite_ = finite_ && std::all_of(sums, sums + looks_.size(), [](double sum) {
              return std::isfinite(sum);
            });
  looks_.clear();
  return finite_;
}

StatusOr<double> DeviceGradients::SquaresOfPart(int rank, int size,
                                                MonoTime deadline) {
  collective::Slice part = buckets_->whole();
  const size_t all = part.count;
  part.offset = all * static_cast<size_t>(rank) / static_cast<size_t>(size);
  part.count = all * static_cast<size_t>(rank + 1) / static_cast<size_t>(size) -
               part.offset;
  LOCKSTEP_RETURN_IF_ERROR(StartSquares(part));
  LOCKSTEP_RETURN_IF_ERROR(looks_.back()->Wait(deadline));
  looks_.clear();
  return *static_cast<const double*>(sums_->data);
}

}  // namespace lockstep::worker::runtime
