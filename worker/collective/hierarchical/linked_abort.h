// Links two communicators: when one breaks, the other is aborted.
//
// A rank that waits in its host does not look at the connections between the
// hosts, and the other way round. Without the link it would wait until its
// deadline, although the peer it waits for left long ago.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LINKED_ABORT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LINKED_ABORT_H_

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::hierarchical {

// Safe from any thread.
class LinkedAbort {
 public:
  enum class From { kWithin, kBetween, kOutside };

  // Both are borrowed until Detach; either may be null. If one broke before,
  // the other is aborted now.
  void Attach(Communicator* within, Communicator* between);
  // Aborts no communicator any more. Waits for an abort that is under way.
  void Detach();

  // One of the two broke, or both are to end. The first reason stays, and peers
  // get it. Nested calls, by a communicator that this aborts, do nothing.
  void Break(From from, const Status& reason);

  // The reason of the first Break.
  Status first() const;

 private:
  void End(Communicator* within, Communicator* between);

  mutable Mutex mu_;
  CondVar ended_;
  Status first_ ABSL_GUARDED_BY(mu_);
  From from_ ABSL_GUARDED_BY(mu_) = From::kOutside;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  Communicator* within_ ABSL_GUARDED_BY(mu_) = nullptr;
  Communicator* between_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LINKED_ABORT_H_
