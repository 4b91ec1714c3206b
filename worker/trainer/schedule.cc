#include "worker/trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::worker::trainer {

double Schedule::At(int64_t step) const {
  if (step <= warmup_steps) {
    return learning_rate * static_cast<double>(step) /
           static_cast<double>(warmup_steps);
  }
  if (cosine_steps <= warmup_steps) return learning_rate;
  // The first step has the whole rate, the last one still a little.
  const double done = static_cast<double>(step - 1 - warmup_steps) /
                      static_cast<double>(cosine_steps - warmup_steps);
  return learning_rate * 0.5 *
         (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
}

}  // namespace lockstep::worker::trainer
