#include "worker/agent/core/contacts.h"

#include <algorithm>

namespace lockstep::worker::agent {
namespace {

constexpr Duration kLeastStep = std::chrono::seconds(1);

void Raise(int64_t time, std::optional<int64_t>* last) {
  *last = std::max(last->value_or(time), time);
}

}  // namespace

void Contacts::OnCoordinator(int64_t sent) { Raise(sent, &coordinator_); }

void Contacts::OnNeighbour(int64_t sent) { Raise(sent, &neighbour_); }

std::optional<int64_t> Contacts::Until(const Fence& fence) const {
  std::optional<int64_t> last = coordinator_;
  if (fence.neighbours_count && neighbour_) Raise(*neighbour_, &last);
  if (!last) return std::nullopt;
  return *last + fence.after.count();
}

bool Contacts::NeedsNeighbours(const Fence& fence, int64_t now) const {
  if (!fence.neighbours_count) return false;
  return !coordinator_ || now - *coordinator_ > 2 * StepOf(fence).count();
}

Duration StepOf(const Fence& fence) {
  return std::max(kLeastStep, fence.after / 16);
}

}  // namespace lockstep::worker::agent
