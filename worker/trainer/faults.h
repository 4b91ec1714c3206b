// The failures that --allow-faults lets a test ask for.
#ifndef LOCKSTEP_WORKER_TRAINER_FAULTS_H_
#define LOCKSTEP_WORKER_TRAINER_FAULTS_H_

#include <cstdint>

#include "common/base/status.h"
#include "worker/trainer/options.h"

namespace lockstep::worker::trainer {

class Faults {
 public:
  // On rank `rank` in the `attempt`-th attempt of the job, from 1. `replaces`:
  // this process replaces a lost one, and passes what that met.
  Faults(const FaultOptions& options, int rank, int attempt,
         bool replaces = false)
      : options_(options),
        armed_(options.allowed && rank == options.on_rank && !replaces &&
               attempt <= options.attempts) {}

  // Before the computation of `step`. May kill the process or take long.
  Status BeforeStep(int64_t step) const;
  // Whether a gradient of `step` is to be spoiled.
  bool SpoilsGradient(int64_t step) const {
    return armed_ && step == options_.nan_at_step;
  }

 private:
  const FaultOptions options_;
  const bool armed_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_FAULTS_H_
