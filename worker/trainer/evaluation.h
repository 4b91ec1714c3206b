// How good the model is on held-out data.
#ifndef LOCKSTEP_WORKER_TRAINER_EVALUATION_H_
#define LOCKSTEP_WORKER_TRAINER_EVALUATION_H_

#include <cstdint>

#include "common/base/status.h"
#include "worker/runtime/session.h"
#include "worker/trainer/job_data.h"
#include "worker/trainer/replica.h"

namespace lockstep {

struct Evaluation {
  uint64_t samples = 0;
  double accuracy = 0;  // Of them, the part whose class was named.
  double loss = 0;      // Mean.
};

// Every held-out sample once, spread over all ranks; the result is the same
// number on each. All ranks alike.
// REQUIRES: data.eval.
StatusOr<Evaluation> Evaluate(Session* session, Replica* replica,
                              const JobData& data, int64_t classes);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_EVALUATION_H_
