// The quality of the model on held-out data.
#ifndef LOCKSTEP_WORKER_TRAINER_EVALUATION_H_
#define LOCKSTEP_WORKER_TRAINER_EVALUATION_H_

#include <cstdint>

#include "common/base/status.h"
#include "worker/runtime/session.h"
#include "worker/trainer/job_data.h"
#include "worker/trainer/replica.h"

namespace lockstep::worker::trainer {

struct Evaluation {
  uint64_t samples = 0;
  double accuracy = 0;  // The part of the samples whose class was right.
  double loss = 0;      // Mean.
};

// Evaluates every held-out sample once, spread over all ranks; all ranks call
// it and get the same numbers.
// REQUIRES: data.eval.
StatusOr<Evaluation> Evaluate(runtime::Session* session, Replica* replica,
                              const JobData& data, int64_t classes);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_EVALUATION_H_
