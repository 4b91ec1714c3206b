// What the check has the device compute. Each call is queued on the default
// stream; errors of its start are returned, others by the next call that waits.
#ifndef LOCKSTEP_WORKER_GPU_CHECK_KERNELS_H_
#define LOCKSTEP_WORKER_GPU_CHECK_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::worker::gpu_check {

// What a comparison found, on the device.
struct Mismatch {
  unsigned long long count;
  // The least index of a wrong value; unsigned, as atomicMin has it.
  unsigned long long first;
};

// `words[i]` is the pattern's word `base + i`.
cudaError_t WritePattern(uint64_t* words, size_t count, uint64_t base,
                         uint32_t round);
// Adds to `found` what differs from it; `first` is `base` + its place.
cudaError_t ComparePattern(const uint64_t* words, size_t count, uint64_t base,
                           uint32_t round, Mismatch* found);

// Square matrices of `size` rows, a multiple of 64; floats and half floats.
struct Matrices {
  float* left;
  float* right;
  void* half_left;
  void* half_right;
  float* product;
  uint32_t size;
};
cudaError_t WriteMatrices(const Matrices& m, uint32_t round);
// product = left * right, by the cores for floats, and by the tensor cores from
// the half floats.
cudaError_t MultiplyFloats(const Matrices& m);
cudaError_t MultiplyHalves(const Matrices& m);
// `table` is ProductTable(size) on the device.
cudaError_t CompareProduct(const Matrices& m, const float* table,
                           uint32_t round, Mismatch* found);

cudaError_t WriteReduce(float* values, size_t count, int rank, uint32_t round);
cudaError_t CompareReduced(const float* values, size_t count, uint32_t round,
                           Mismatch* found);

}  // namespace lockstep::worker::gpu_check

#endif  // LOCKSTEP_WORKER_GPU_CHECK_KERNELS_H_
