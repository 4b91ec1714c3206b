#include "worker/collective/nccl/nccl_kernels.cuh"
#include "worker/collective/nccl/nccl_kernels.h"

namespace lockstep::worker::collective::nccl {
namespace {

// Blocks for `count` elements, at most `most`. None at all is not a grid.
int BlocksFor(size_t count, int most) {
  const size_t needed = (count + kThreads - 1) / kThreads;
  if (needed == 0) return 1;
  return needed < static_cast<size_t>(most) ? static_cast<int>(needed) : most;
}

}  // namespace

cudaError_t SumOfSquaresOnDevice(const float* data, size_t count,
                                 double* partials, double* sum,
                                 cudaStream_t stream) {
  const int blocks = BlocksFor(count, kSquaresPartials);
  SquaresByBlock<<<blocks, kThreads, 0, stream>>>(data, count, partials);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  SumPartials<<<1, kThreads, 0, stream>>>(partials, blocks, sum);
  return cudaGetLastError();
}

cudaError_t AddOnDevice(float* to, const float* from, size_t count,
                        cudaStream_t stream) {
  // Enough to fill any GPU of today.
  constexpr int kMostBlocks = 4096;
  AddByElement<<<BlocksFor(count, kMostBlocks), kThreads, 0, stream>>>(to, from,
                                                                       count);
  return cudaGetLastError();
}

}  // namespace lockstep::worker::collective::nccl
