// The state of a training: a checkpoint holds it and a resumed run restores it.
//
//   tensors   the parameters ("conv1.weight"), the optimizer's state
//             ("optimizer.momentum.conv1.weight") and its count of steps
//   progress  position in the data, and results of evaluations so far
//   gradient-order  order in which the reducer fills its buckets, once learned:
//             sums of several ranks depend on it
//   rng       state of each rank's random number generator; none where the job
//             is elastic, as each shard of a step has its own seed
//
// The learning rate is a function of the step and needs no state.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAIN_STATE_H_
#define LOCKSTEP_WORKER_TRAINER_TRAIN_STATE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/tensor_view.h"
#include "worker/data/shard_plan.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/replica.h"

namespace lockstep::worker::trainer {

struct TrainProgress {
  int64_t step = 0;   // In the state, skipped ones counted.
  data::DataCursor cursor;  // The beginning of the next step.
  // Results of the evaluations so far; below 0: none.
  double accuracy = -1;
  double evaluation_loss = -1;
  double best_accuracy = -1;
  int64_t evaluations_without_gain = 0;
  int64_t evaluated_step = -1;
  // Evaluations stopped improving, so no step follows.
  bool stopped_early = false;

  // Takes the result of an evaluation after `step`. `patience` 0: never stop.
  void Observe(double accuracy, double loss, int64_t patience);

  bool operator==(const TrainProgress&) const = default;
};

// JSON, exact for every number.
std::string EncodeTrainProgress(const TrainProgress& progress);
// DataLoss for anything that Encode did not make.
StatusOr<TrainProgress> DecodeTrainProgress(std::string_view text);

// The tensors of the state, in place: valid as long as both.
std::vector<checkpoint::TensorView> StateTensors(const Replica& replica,
                                                 Optimizer* optimizer);

// Copies `saved` over the tensors that StateTensors named. FailedPrecondition
// names the first that `saved` lacks or has in another type or shape; nothing
// has been copied then.
Status LoadState(const checkpoint::Shard& saved,
                 std::span<const checkpoint::TensorView> tensors);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_TRAIN_STATE_H_
