#include "worker/runtime/order_learner.h"

#include <algorithm>

namespace lockstep::worker::runtime {
namespace {

// A program that never says what is ready is not asked for ever.
constexpr int64_t kUntil = 10;

}  // namespace

Status OrderLearner::Allocate() {
  if (!learning_) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      words_, communicator_->Allocate((parameters_ + 1) * sizeof(uint32_t)));
  seen_.reserve(parameters_);
  return OkStatus();
}

Status OrderLearner::Resume(bool learns, LearnedOrder known) {
  learning_ = learns;
  known_ = std::move(known);
  return words_ == nullptr ? Allocate() : OkStatus();
}

// The first word is 1 where rank 0 has an order.
StatusOr<std::vector<uint32_t>> OrderLearner::Agree(int64_t committed,
                                                    Duration timeout) {
  if (!known_.order.empty() && committed >= known_.at) {
    return std::exchange(known_.order, {});
  }
  if (!learning_ || committed < kFrom) return std::vector<uint32_t>();
  learning_ = committed < kUntil;
  auto* const words = static_cast<uint32_t*>(words_->data);
  words[0] = seen_.size() == parameters_ ? 1 : 0;
  if (words[0] == 1) std::copy(seen_.begin(), seen_.end(), words + 1);
  const collective::Slice slice{words_, 0, (parameters_ + 1) * sizeof(uint32_t),
                                collective::DataType::kUint8};
  LOCKSTEP_RETURN_IF_ERROR(collective::Run(
      communicator_, {collective::CollectiveKind::kBroadcast, slice}, timeout));
  if (words[0] != 1) return std::vector<uint32_t>();
  learning_ = false;
  return std::vector<uint32_t>(words + 1, words + 1 + parameters_);
}

}  // namespace lockstep::worker::runtime
