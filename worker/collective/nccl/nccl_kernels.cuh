// The kernels of nccl_kernels.cu, apart so that a test can run them on the
// host: all that they need of CUDA is where a thread stands and how a block
// waits.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_KERNELS_CUH_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_KERNELS_CUH_

#include <cstddef>

namespace lockstep::worker::collective::nccl {

// Of a block.
inline constexpr int kThreads = 256;

// The block's sum of one number a thread, in thread 0: by halves, so always in
// the same order.
__device__ inline double SumOfBlock(double own) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

// Each thread takes every n-th element, of n threads in all: neighbours read
// neighbours.
static __global__ void SquaresByBlock(const float* data, size_t count,
                                      double* partials) {
  double own = 0;
  const size_t threads = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += threads) {
    const double value = data[i];
    own += value * value;
  }
  const double sum = SumOfBlock(own);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

static __global__ void SumPartials(const double* partials, int count,
                                   double* sum) {
  double own = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) own += partials[i];
  const double all = SumOfBlock(own);
  if (threadIdx.x == 0) *sum = all;
}

static __global__ void AddByElement(float* to, const float* from,
                                    size_t count) {
  const size_t threads = size_t{gridDim.x} * kThreads;
  for (size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += threads) {
    to[i] += from[i];
  }
}

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_KERNELS_CUH_
