// One communicator of NCCL, with its errors as Status.
//
// It is non-blocking: a call that is not done says so, and is polled. All calls
// are made by one thread, so that none of them meets another: a communicator of
// NCCL is not made for two threads, and abort and free are known to hang while
// another call runs.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_COMM_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_COMM_H_

#include <string_view>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/nccl/nccl_api.h"
#include "worker/collective/nccl/nccl_queue.h"

namespace lockstep::worker::collective::nccl {

class NcclComm {
 public:
  // Both outlive it.
  NcclComm(const NcclApi& api, const NcclEngineOptions& options)
      : api_(api), options_(options) {}

  // Begins to connect the ranks.
  Status Init();
  bool exists() const { return comm_ != nullptr; }
  // Whether the last call is still under way. An error of it, or one that came
  // since, is about `what`.
  StatusOr<bool> Busy(std::string_view what);

  // Puts `operation` on `stream`. `data`: its slice on the device; `word`: an
  // int32 there, which a barrier reduces.
  Status Launch(const Operation& operation, void* data, void* word,
                cudaStream_t stream);

  // Stops what runs, where the library can. False: it could not by `deadline`.
  bool Revoke(MonoTime deadline);
  // Begins to leave in good order, which waits for the peers.
  bool Finalize();
  // Free the communicator: after Finalize is done, or at once.
  void Destroy() { (void)api_.destroy(comm_); }
  void Abort() { (void)api_.abort(comm_); }

 private:
  Status StatusOf(ncclResult_t result, std::string_view what) const;

  const NcclApi& api_;
  const NcclEngineOptions& options_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_COMM_H_
