// The communicator of a session's generation and recovery, which the link's
// thread may abort at any time: also while the ranks still form it.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::runtime {

// Used by the training loop's thread, except EndGeneration and EndRecoveries,
// which any thread may call.
class SessionCommunicator {
 public:
  // Null before Adopt and after Drop.
  collective::Communicator* get() const { return view_; }

  // Keeps `communicator`, formed by `recovery`. Aborted: the generation has
  // ended meanwhile, or a newer recovery has begun; the communicator is kept,
  // and aborted.
  Status Adopt(std::unique_ptr<collective::Communicator> communicator,
               uint32_t recovery);
  void Drop();
  // Aborts the communicator, so that peers do not wait for this rank.
  void Abort(std::string_view reason);

  // Aborts the communicator, and any later one.
  void EndGeneration(const std::string& reason);
  // The same for those of recoveries before `recovery`.
  void EndRecoveries(uint32_t recovery);

 private:
  Mutex mu_;
  std::unique_ptr<collective::Communicator> communicator_ ABSL_GUARDED_BY(mu_);
  std::string end_reason_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint32_t recovery_ ABSL_GUARDED_BY(mu_) = 0;  // communicator_'s
  uint32_t newest_ ABSL_GUARDED_BY(mu_) = 0;
  collective::Communicator* view_ = nullptr;  // for the loop's thread
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_COMMUNICATOR_H_
