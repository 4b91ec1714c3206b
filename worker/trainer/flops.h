// The floating-point operations of the models of models.h. Pure.
#ifndef LOCKSTEP_WORKER_TRAINER_FLOPS_H_
#define LOCKSTEP_WORKER_TRAINER_FLOPS_H_

#include "worker/trainer/replica.h"

namespace lockstep::worker::trainer {

// Returns the operations of one sample, forward and backward: multiplications
// and additions of the convolutions and dense layers, as
// torch.utils.flop_counter counts them. The rest (normalisation, activations,
// the optimizer) is left out, as usual: it is negligible. 0: the model is not
// known.
double FlopsPerSample(const ModelOptions& options);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_FLOPS_H_
