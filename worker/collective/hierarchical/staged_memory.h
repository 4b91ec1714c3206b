// Buffers that two communicators know: memory of the host's, registered with
// the one between the hosts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGED_MEMORY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGED_MEMORY_H_

#include <map>
#include <memory>

#include "common/base/mutex.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep {

// Threads: Allocate and Register by the user, the others by any.
class StagedMemory final : public TransportMemory {
 public:
  // Borrowed; either may be null, not both.
  StagedMemory(Communicator* within, Communicator* between)
      : within_(within), between_(between) {}

  StatusOr<const Buffer*> Allocate(size_t bytes) override;
  StatusOr<const Buffer*> Register(void* data, size_t bytes) override;
  bool Owns(const Buffer* buffer) const override;

  // What the two call a buffer that is owned; null where there is none.
  const Buffer* Within(const Buffer* buffer) const;
  const Buffer* Between(const Buffer* buffer) const;

  // Held while either of the two is called, by Allocate and Register too: they
  // are made for one thread, and the user may allocate while another starts.
  // Not for what waits, nor for Abort.
  Mutex* calls() ABSL_LOCK_RETURNED(calls_) { return &calls_; }

 private:
  struct Staged {
    Buffer buffer;
    const Buffer* within = nullptr;
    const Buffer* between = nullptr;
  };
  const Buffer* Keep(Staged staged);
  const Staged* Find(const Buffer* buffer) const;

  Communicator* const within_;
  Communicator* const between_;
  Mutex calls_;  // before mu_
  mutable Mutex mu_;
  std::map<const Buffer*, std::unique_ptr<Staged>> staged_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGED_MEMORY_H_
