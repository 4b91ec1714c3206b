// How many floating-point operations the models of models.h take. Pure.
#ifndef LOCKSTEP_WORKER_TRAINER_FLOPS_H_
#define LOCKSTEP_WORKER_TRAINER_FLOPS_H_

#include "worker/trainer/replica.h"

namespace lockstep {

// Of one sample, forward and backward: multiplications and additions of the
// convolutions and dense layers, as torch.utils.flop_counter counts them. The
// rest (normalisation, activations, the optimizer) is left out, as usual: it is
// hardly more than nothing. 0 for a model that is not known.
double FlopsPerSample(const ModelOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_TRAINER_FLOPS_H_
