// The parts of the check. Each uses the current devices of this process, and
// returns what it measured or why the GPU failed.
//
// Not thread-safe: one part at a time.
#ifndef LOCKSTEP_WORKER_GPU_CHECK_PARTS_H_
#define LOCKSTEP_WORKER_GPU_CHECK_PARTS_H_

#include <cuda_runtime_api.h>

#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/gpu_check/kernels.h"

namespace lockstep::worker::gpu_check {

struct PartOptions {
  // A part ends after the round in which this time is over; it has two rounds
  // at least.
  Duration time{};
  // For tests: one value is changed before it is compared.
  bool spoil = false;
};

// Rates are of the part's own plain kernels, in 1e9 bytes or 1e12 operations a
// second. Aborted: a value is wrong. Unavailable: CUDA or NCCL says an error.

// Writes patterns to nine tenths of the free memory, and compares them.
StatusOr<double> CheckMemory(const PartOptions& options);
// Multiplies matrices by the cores for floats and by the tensor cores.
StatusOr<double> CheckMatmul(const PartOptions& options);
// All-reduces on devices 0 and 1. NotFound: there is no NCCL.
StatusOr<double> CheckAllReduce(const PartOptions& options);

// Unavailable if `error` is one of `doing`.
Status Check(cudaError_t error, const char* doing);

// A Mismatch on the device.
class Found {
 public:
  Found() = default;
  ~Found();
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;

  Status Allocate();
  Status Clear();
  // Waits for the device.
  StatusOr<Mismatch> Read() const;
  Mismatch* get() { return found_; }

 private:
  Mismatch* found_ = nullptr;
};

// Time on the device between two points of the default stream.
class DeviceTimer {
 public:
  DeviceTimer() = default;
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  Status Start();
  // Waits for the device; seconds.
  StatusOr<double> Stop();

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace lockstep::worker::gpu_check

#endif  // LOCKSTEP_WORKER_GPU_CHECK_PARTS_H_
