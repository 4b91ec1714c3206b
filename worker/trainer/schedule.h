// The learning rate of each step. PURE: a function of the step alone, so that
// a resumed run goes on exactly where it was.
#ifndef LOCKSTEP_WORKER_TRAINER_SCHEDULE_H_
#define LOCKSTEP_WORKER_TRAINER_SCHEDULE_H_

#include <cstdint>

namespace lockstep::worker::trainer {

struct Schedule {
  double learning_rate = 0;  // For a full step, scaled for the global batch.
  // Steps in which the rate rises from 0, in equal parts (Goyal et al.,
  // "Accurate, Large Minibatch SGD", section 2.2).
  int64_t warmup_steps = 0;
  // After them it falls to 0 along half a cosine until this step (Loshchilov
  // and Hutter, "SGDR", without restarts). 0: it stays.
  int64_t cosine_steps = 0;

  // `step` counts from 1.
  double At(int64_t step) const;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_SCHEDULE_H_
