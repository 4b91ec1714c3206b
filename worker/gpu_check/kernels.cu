#include <cuda_fp16.h>
#include <mma.h>

#include "worker/gpu_check/kernels.h"
#include "worker/gpu_check/values.h"

namespace lockstep::worker::gpu_check {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 8192;
// Of the product's tile that one block computes, of its side that a thread
// does, and of the depth that is shared at a time.
constexpr int kTile = 64;
constexpr int kOwn = 4;
constexpr int kStep = 16;
// Of a tile of the tensor cores.
constexpr int kMma = 16;

int BlocksFor(size_t count) {
  const size_t needed = (count + kThreads - 1) / kThreads;
  return needed == 0            ? 1
         : needed < kMostBlocks ? static_cast<int>(needed)
                                : kMostBlocks;
}

__device__ size_t FirstIndex() {
  return size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ size_t IndexStep() { return size_t{gridDim.x} * blockDim.x; }

__device__ void Note(Mismatch* found, unsigned long long place) {
  atomicAdd(&found->count, 1ull);
  atomicMin(&found->first, place);
}

__global__ void WritePatternKernel(uint64_t* words, size_t count, uint64_t base,
                                   uint32_t round) {
  for (size_t i = FirstIndex(); i < count; i += IndexStep()) {
    words[i] = PatternWord(base + i, round);
  }
}

__global__ void ComparePatternKernel(const uint64_t* words, size_t count,
                                     uint64_t base, uint32_t round,
                                     Mismatch* found) {
  for (size_t i = FirstIndex(); i < count; i += IndexStep()) {
    if (words[i] != PatternWord(base + i, round)) Note(found, base + i);
  }
}

__global__ void WriteMatricesKernel(Matrices m, uint32_t round) {
  const size_t count = size_t{m.size} * m.size;
  auto* const half_left = static_cast<__half*>(m.half_left);
  auto* const half_right = static_cast<__half*>(m.half_right);
  for (size_t i = FirstIndex(); i < count; i += IndexStep()) {
    const auto row = static_cast<uint32_t>(i / m.size);
    const auto column = static_cast<uint32_t>(i % m.size);
    const float left = LeftValue(row, column, round);
    const float right = RightValue(row, column, round);
    m.left[i] = left;
    m.right[i] = right;
    half_left[i] = __float2half(left);
    half_right[i] = __float2half(right);
    // A product that is not computed is not that of the last round.
    m.product[i] = -1;
  }
}

// A block computes a tile of 64 x 64, each of its 256 threads 4 x 4 of it.
__global__ void MultiplyFloatsKernel(Matrices m) {
  __shared__ float left[kStep][kTile];
  __shared__ float right[kStep][kTile];
  const uint32_t n = m.size;
  const uint32_t row0 = blockIdx.y * kTile;
  const uint32_t column0 = blockIdx.x * kTile;
  const uint32_t x = threadIdx.x % (kTile / kOwn) * kOwn;
  const uint32_t y = threadIdx.x / (kTile / kOwn) * kOwn;
  float sums[kOwn][kOwn] = {};
  for (uint32_t k0 = 0; k0 < n; k0 += kStep) {
    for (uint32_t i = threadIdx.x; i < kStep * kTile; i += kThreads) {
      left[i % kStep][i / kStep] =
          m.left[size_t{row0 + i / kStep} * n + k0 + i % kStep];
      right[i / kTile][i % kTile] =
          m.right[size_t{k0 + i / kTile} * n + column0 + i % kTile];
    }
    __syncthreads();
    for (int k = 0; k < kStep; ++k) {
      for (int a = 0; a < kOwn; ++a) {
        for (int b = 0; b < kOwn; ++b) {
          sums[a][b] = fmaf(left[k][y + a], right[k][x + b], sums[a][b]);
        }
      }
    }
    __syncthreads();
  }
  for (int a = 0; a < kOwn; ++a) {
    for (int b = 0; b < kOwn; ++b) {
      m.product[size_t{row0 + y + a} * n + column0 + x + b] = sums[a][b];
    }
  }
}

// A block of 4 warps computes a tile of 64 x 64, each warp 32 x 32 of it.
__global__ void MultiplyHalvesKernel(Matrices m) {
  using nvcuda::wmma::accumulator;
  using nvcuda::wmma::fragment;
  using nvcuda::wmma::matrix_a;
  using nvcuda::wmma::matrix_b;
  using nvcuda::wmma::row_major;
  const auto* const left = static_cast<const __half*>(m.half_left);
  const auto* const right = static_cast<const __half*>(m.half_right);
  const uint32_t n = m.size;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t row0 = blockIdx.y * kTile + warp / 2 * 2 * kMma;
  const uint32_t column0 = blockIdx.x * kTile + warp % 2 * 2 * kMma;
  fragment<accumulator, kMma, kMma, kMma, float> sums[2][2];
  for (auto& row : sums) {
    for (auto& sum : row) nvcuda::wmma::fill_fragment(sum, 0.0f);
  }
  for (uint32_t k = 0; k < n; k += kMma) {
    fragment<matrix_a, kMma, kMma, kMma, __half, row_major> a[2];
    fragment<matrix_b, kMma, kMma, kMma, __half, row_major> b[2];
    for (uint32_t i = 0; i < 2; ++i) {
      nvcuda::wmma::load_matrix_sync(a[i],
                                     left + size_t{row0 + i * kMma} * n + k, n);
      nvcuda::wmma::load_matrix_sync(
          b[i], right + size_t{k} * n + column0 + i * kMma, n);
    }
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) {
        nvcuda::wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
      }
    }
  }
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t j = 0; j < 2; ++j) {
      nvcuda::wmma::store_matrix_sync(
          m.product + size_t{row0 + i * kMma} * n + column0 + j * kMma,
          sums[i][j], n, nvcuda::wmma::mem_row_major);
    }
  }
}

__global__ void CompareProductKernel(Matrices m, const float* table,
                                     uint32_t round, Mismatch* found) {
  const size_t count = size_t{m.size} * m.size;
  for (size_t i = FirstIndex(); i < count; i += IndexStep()) {
    const auto row = static_cast<uint32_t>(i / m.size);
    const auto column = static_cast<uint32_t>(i % m.size);
    if (m.product[i] != table[ProductIndex(row, column, round)]) {
      Note(found, i);
    }
  }
}

__global__ void WriteReduceKernel(float* values, size_t count, int rank,
                                  uint32_t round) {
  for (size_t i = FirstIndex(); i < count; i += IndexStep()) {
    values[i] = ReduceValue(i, rank, round);
  }
}

__global__ void CompareReducedKernel(const float* values, size_t count,
                                     uint32_t round, Mismatch* found) {
  for (size_t i = FirstIndex(); i < count; i += IndexStep()) {
    if (values[i] != ReducedValue(i, round)) Note(found, i);
  }
}

}  // namespace

cudaError_t WritePattern(uint64_t* words, size_t count, uint64_t base,
                         uint32_t round) {
  WritePatternKernel<<<BlocksFor(count), kThreads>>>(words, count, base, round);
  return cudaGetLastError();
}

cudaError_t ComparePattern(const uint64_t* words, size_t count, uint64_t base,
                           uint32_t round, Mismatch* found) {
  ComparePatternKernel<<<BlocksFor(count), kThreads>>>(words, count, base,
                                                       round, found);
  return cudaGetLastError();
}

cudaError_t WriteMatrices(const Matrices& m, uint32_t round) {
  WriteMatricesKernel<<<BlocksFor(size_t{m.size} * m.size), kThreads>>>(m,
                                                                        round);
  return cudaGetLastError();
}

cudaError_t MultiplyFloats(const Matrices& m) {
  const dim3 grid(m.size / kTile, m.size / kTile);
  MultiplyFloatsKernel<<<grid, kThreads>>>(m);
  return cudaGetLastError();
}

cudaError_t MultiplyHalves(const Matrices& m) {
  const dim3 grid(m.size / kTile, m.size / kTile);
  MultiplyHalvesKernel<<<grid, 4 * 32>>>(m);
  return cudaGetLastError();
}

cudaError_t CompareProduct(const Matrices& m, const float* table,
                           uint32_t round, Mismatch* found) {
  CompareProductKernel<<<BlocksFor(size_t{m.size} * m.size), kThreads>>>(
      m, table, round, found);
  return cudaGetLastError();
}

cudaError_t WriteReduce(float* values, size_t count, int rank, uint32_t round) {
  WriteReduceKernel<<<BlocksFor(count), kThreads>>>(values, count, rank, round);
  return cudaGetLastError();
}

cudaError_t CompareReduced(const float* values, size_t count, uint32_t round,
                           Mismatch* found) {
  CompareReducedKernel<<<BlocksFor(count), kThreads>>>(values, count, round,
                                                       found);
  return cudaGetLastError();
}

}  // namespace lockstep::worker::gpu_check
