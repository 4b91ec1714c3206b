// The nccl backend behind communicator.h.
//
// Differs from what the other backends do in this: 16-bit floats are reduced
// in their own type, rounding at every hop, in an order that NCCL chooses by
// the shape of the job; the minimum and maximum of floats are refused, because
// NCCL may lose a NaN.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_

#include <memory>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"

namespace lockstep::worker::collective::nccl {

// Exchanges the unique id through the store and forms. Errors as
// FormCommunicator. `api` lives as long as the process.
StatusOr<std::unique_ptr<Communicator>> FormNccl(
    const CommunicatorOptions& options, const GpuApi& api);

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_COMMUNICATOR_H_
