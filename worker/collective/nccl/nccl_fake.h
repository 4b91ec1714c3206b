// For tests: a GPU and an NCCL in the memory of this process.
//
// Streams are lists of steps that run, in order, at each query of how far they
// are; a collective runs once every rank has started its part. Faults are set
// before the communicators form.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_FAKE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_FAKE_H_

#include <cstddef>

#include "worker/collective/nccl/nccl_api.h"

namespace lockstep::worker::collective::nccl {

struct FakeGpuFaults {
  bool no_revoke = false;           // a library before 2.28
  bool revoke_fails = false;        // it refuses
  bool revoke_never_ends = false;   // it stays busy
  bool abort_hangs = false;         // abort does not return; see ReleaseFake
  bool kernels_never_stop = false;  // whatever is done to them
  bool squares_take_long = false;   // until ReleaseFakeFills
  bool connects_late = false;       // a call is done once all have made it
  bool peer_error = false;          // a collective ends with ncclRemoteError
  bool init_fails = false;          // at once
  bool no_kernel = false;           // none of ours for this GPU
  size_t memory = size_t{1} << 30;  // then allocations fail
};

// Resets the fake; the table is the same every time. No communicator of
// an earlier one may be left, except one that is stuck.
const GpuApi& ResetFakeGpu(const FakeGpuFaults& faults);
// The table, as it was reset last.
const GpuApi& FakeGpu();
// Lets every abort that hangs return.
void ReleaseFakeAborts();

// Device memory in use: 0 once all is freed.
size_t FakeBytesInUse();
int FakeCommunicatorsInUse();
// How often NCCL was called for a communicator by a thread other than the one
// that made it. Must stay 0.
int FakeWrongThreads();
// Collectives that were put on streams.
int FakeLaunches();
// Sums of squares that were launched, without the one while forming.
int FakeSumsOfSquares();
int FakeRevokes();
int FakeAborts();

// Communicators that are made from now on never form, if `hang`.
void HangFakeForming(bool hang);

cudaStream_t MakeFakeStream();
// From now on it is being captured into a graph.
void CaptureFakeStream(cudaStream_t stream);
// The device that the calling thread has chosen.
int FakeDeviceOfThread();
void SetFakeDeviceOfThread(int device);
// Calls that depend on the device, and were made with another one than 0.
int FakeCallsOnWrongDevice();
// Writes `value` to `bytes` of device memory, on `stream`, once Release.
void FakeSlowFill(cudaStream_t stream, void* data, int value, size_t bytes);
void ReleaseFakeFills();

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_FAKE_H_
