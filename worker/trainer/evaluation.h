// The quality of the model on held-out data.
#ifndef LOCKSTEP_WORKER_TRAINER_EVALUATION_H_
#define LOCKSTEP_WORKER_TRAINER_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

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
// it and get the same numbers. `elastic`: the numbers do not depend on who
// computes a shard (Session::shards).
// REQUIRES: data.eval.
StatusOr<Evaluation> Evaluate(runtime::Session* session, Replica* replica,
                              const JobData& data, int64_t classes,
                              bool elastic);

// A part of Evaluate: evaluates the held-out samples of each of `shards` of
// `world`. Returns three numbers for each shard of the world: its samples, how
// many of them are right, and the sum of their losses; zeros where it is not
// one of `shards`. Calls `after_batch` now and then; it may be empty.
StatusOr<std::vector<double>> EvaluateShards(
    Replica* replica, const JobData& data, int64_t classes, int world,
    std::span<const int> shards, const std::function<void()>& after_batch);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_EVALUATION_H_
