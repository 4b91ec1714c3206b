// The functions of CUDA and NCCL that the nccl backend calls, as tables: NCCL
// is opened at run time, and tests put a GPU of their own in its place.
//
// Only the files of this folder and of worker/gpu_check include headers of
// CUDA.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_API_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_API_H_

#include <nccl.h>

#include <cstddef>

namespace lockstep::worker::collective::nccl {

struct CudaMemoryApi {
  cudaError_t (*allocate)(void** data, size_t bytes);
  cudaError_t (*free)(void* data);
  // Page-locked host memory.
  cudaError_t (*allocate_host)(void** data, size_t bytes);
  cudaError_t (*free_host)(void* data);
  // Both on `stream`; clear_on writes zeros.
  cudaError_t (*copy)(void* to, const void* from, size_t bytes,
                      cudaMemcpyKind kind, cudaStream_t stream);
  cudaError_t (*clear_on)(void* data, size_t bytes, cudaStream_t stream);
};

struct CudaStreamApi {
  // A stream that does not wait for the default one.
  cudaError_t (*create_stream)(cudaStream_t* stream);
  cudaError_t (*destroy_stream)(cudaStream_t stream);
  // cudaErrorNotReady while anything runs.
  cudaError_t (*query_stream)(cudaStream_t stream);
  cudaError_t (*wait_event)(cudaStream_t stream, cudaEvent_t event);
  // Without time stamps.
  cudaError_t (*create_event)(cudaEvent_t* event);
  cudaError_t (*destroy_event)(cudaEvent_t event);
  cudaError_t (*record_event)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*query_event)(cudaEvent_t event);
  // Calls of this thread do not end captures of others from now on.
  cudaError_t (*spare_captures)();
  // Whether `stream` is being captured into a graph.
  cudaError_t (*is_capturing)(cudaStream_t stream, bool* capturing);
};

struct CudaApi : CudaMemoryApi, CudaStreamApi {
  cudaError_t (*set_device)(int device);
  cudaError_t (*get_device)(int* device);
  const char* (*describe)(cudaError_t error);
  // nccl_kernels.h.
  cudaError_t (*sum_of_squares)(const float* data, size_t count,
                                double* partials, double* sum,
                                cudaStream_t stream);
  cudaError_t (*add)(float* to, const float* from, size_t count,
                     cudaStream_t stream);
};

struct NcclApi {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommGetAsyncError) get_async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  // Null before NCCL 2.28.
  decltype(&ncclCommRevoke) revoke;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclGetErrorString) describe;
  decltype(&ncclGetLastError) last_error;
};

struct GpuApi {
  CudaApi cuda;
  NcclApi nccl;
  int nccl_version;  // NCCL_VERSION_CODE of the library.
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_API_H_
