// Two communicators that end together: when one breaks, so does the other.
//
// A rank that waits in its host does not look at what goes on between the
// hosts, and the other way round. Without this it would stay there until its
// deadline, although whom it waits for has left long ago.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LINKED_ABORT_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LINKED_ABORT_H_

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep {

// Safe from any thread.
class LinkedAbort {
 public:
  enum class From { kWithin, kBetween, kOutside };

  // Borrowed until Detach; either may be null. What broke before ends the
  // other now.
  void Attach(Communicator* within, Communicator* between);
  // Nothing is ended any more: waits for those who are at it.
  void Detach();

  // One of the two broke, or all is to end. The first reason stays; peers are
  // told it. Nested calls, of those that this ends, do nothing.
  void Break(From from, const Status& reason);

  // What Break was first called with.
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

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_LINKED_ABORT_H_
