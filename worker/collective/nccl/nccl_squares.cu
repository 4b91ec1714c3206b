#include "worker/collective/nccl/nccl_squares.h"
#include "worker/collective/nccl/nccl_squares_kernels.cuh"

namespace lockstep::worker::collective::nccl {

cudaError_t SumOfSquaresOnDevice(const float* data, size_t count,
                                 double* partials, double* sum,
                                 cudaStream_t stream) {
  const size_t needed = (count + kSquaresThreads - 1) / kSquaresThreads;
  // None at all is not a grid.
  const int blocks = needed == 0                 ? 1
                     : needed < kSquaresPartials ? static_cast<int>(needed)
                                                 : kSquaresPartials;
  SquaresByBlock<<<blocks, kSquaresThreads, 0, stream>>>(data, count, partials);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  SumPartials<<<1, kSquaresThreads, 0, stream>>>(partials, blocks, sum);
  return cudaGetLastError();
}

}  // namespace lockstep::worker::collective::nccl
