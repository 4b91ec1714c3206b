// The kernels of our own. All other work of the nccl backend on a device is
// NCCL's or CUDA's. They return at once, and run on `stream`.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_KERNELS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>

namespace lockstep::worker::collective::nccl {

// Float64 words of device memory that one sum needs.
inline constexpr int kSquaresPartials = 1024;

// Puts on `stream`: the sum of the squares of `count` floats at `data`, made in
// float64 in an order that depends on `count` alone, goes to `sum`. All three
// are device memory; `partials` has kSquaresPartials words and is in use until
// the sum is there.
cudaError_t SumOfSquaresOnDevice(const float* data, size_t count,
                                 double* partials, double* sum,
                                 cudaStream_t stream);

// Puts on `stream`: each of `count` floats at `to` grows by that at `from`.
// Both are device memory, and apart.
cudaError_t AddOnDevice(float* to, const float* from, size_t count,
                        cudaStream_t stream);

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_KERNELS_H_
