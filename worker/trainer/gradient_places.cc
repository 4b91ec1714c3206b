#include "worker/trainer/gradient_places.h"

#include <c10/core/CPUAllocator.h>

#include <map>

#include "common/base/mutex.h"

namespace lockstep::worker::trainer {
namespace {

// A copy of less stays in the core's cache and costs nothing worth the risk of
// a wrong guess.
constexpr size_t kSmallest = 128 << 10;

// The backward pass that runs on this thread.
thread_local GradientPlaces* running = nullptr;

}  // namespace

// Memory is freed by its address alone, so those of places are remembered.
class PlacingAllocator final : public c10::Allocator {
 public:
  explicit PlacingAllocator(c10::Allocator* other) : other_(other) {}

  c10::DataPtr allocate(size_t bytes) const override {
    GradientPlaces::Place* const place = running == nullptr || bytes < kSmallest
                                             ? nullptr
                                             : running->Take(bytes);
    if (place == nullptr) return other_->allocate(bytes);
    {
      MutexLock lock(&mu_);
      used_[place->data] = place;
    }
    return {place->data, place->data, &Delete,
            c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }

  static PlacingAllocator* instance;

 private:
  static void Delete(void* data) {
    if (!instance->Release(data)) instance->other_->raw_deleter()(data);
  }
  bool Release(void* data) const {
    MutexLock lock(&mu_);
    const auto it = used_.find(data);
    if (it == used_.end()) return false;
    it->second->in_use = false;
    used_.erase(it);
    return true;
  }

  c10::Allocator* const other_;
  mutable Mutex mu_;
  mutable std::map<void*, GradientPlaces::Place*> used_ ABSL_GUARDED_BY(mu_);
};

PlacingAllocator* PlacingAllocator::instance = nullptr;

// LibTorch keeps the pointer for ever.
void GradientPlaces::Install() {
  if (PlacingAllocator::instance != nullptr) return;
  PlacingAllocator::instance = new PlacingAllocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(PlacingAllocator::instance, /*priority=*/255);
}

void GradientPlaces::Begin(std::span<const std::span<float>> places) {
  places_.resize(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    places_[i].data = places[i].data();
    places_[i].bytes = places[i].size_bytes();
    places_[i].complete = false;
  }
  running = this;
}

void GradientPlaces::End() { running = nullptr; }

// Gradients come about from the last to the first.
GradientPlaces::Place* GradientPlaces::Take(size_t bytes) {
  for (size_t i = places_.size(); i-- > 0;) {
    Place& place = places_[i];
    if (place.bytes != bytes || place.complete || place.missed ||
        place.in_use) {
      continue;
    }
    place.in_use = true;
    return &place;
  }
  return nullptr;
}

GradientPlaces::Found GradientPlaces::Complete(size_t i, const float* data) {
  if (i >= places_.size()) return Found::kElsewhere;
  Place& place = places_[i];
  place.complete = true;
  if (data == place.data) return Found::kInPlace;
  place.missed = true;
  return place.in_use ? Found::kPlaceInUse : Found::kElsewhere;
}

}  // namespace lockstep::worker::trainer
