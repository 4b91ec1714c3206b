// Lets LibTorch make gradients where they are to be reduced, so that no copy is
// needed.
//
// LibTorch's backward allocates memory for each gradient of a parameter and
// hands it over. Here its allocator is asked first: while a backward runs, an
// allocation that is exactly as large as a gradient that is still to come gets
// that gradient's place in the reducer's memory. It may be another tensor of
// the same size, so the hook that takes the gradient checks where it lies: in
// its place; elsewhere, to be copied; or elsewhere while its place is still in
// use, to be copied after the backward. A place that was missed once is not
// offered again: if another tensor of that size comes first, it does in every
// step.
//
// Only files that include LibTorch include this.
#ifndef LOCKSTEP_WORKER_TRAINER_GRADIENT_PLACES_H_
#define LOCKSTEP_WORKER_TRAINER_GRADIENT_PLACES_H_

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::worker::trainer {

// One backward at a time, on one thread. Outlives all tensors that it placed.
class GradientPlaces {
 public:
  // Installs itself in front of LibTorch's allocator, for the life of the
  // process. Without it no gradient is ever placed. Call it once, before the
  // first tensor.
  static void Install();

  GradientPlaces() = default;
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  // From now on, on this thread, until End: places[i] is the place of gradient
  // i.
  void Begin(std::span<const std::span<float>> places);
  void End();

  enum class Found { kInPlace, kElsewhere, kPlaceInUse };
  // Gradient i is complete and lies at `data`; no other tensor gets its place.
  Found Complete(size_t i, const float* data);

 private:
  friend class PlacingAllocator;
  struct Place {
    float* data = nullptr;
    size_t bytes = 0;
    bool complete = false;
    bool missed = false;  // Once.
    bool in_use = false;  // By a tensor, or another allocation.
  };
  // Null: none has this size and is free.
  Place* Take(size_t bytes);

  // Their addresses stay: tensors know them.
  std::vector<Place> places_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_GRADIENT_PLACES_H_
