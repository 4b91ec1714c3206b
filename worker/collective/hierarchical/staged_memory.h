// Buffers that two communicators know: the host's memory, registered with the
// communicator between the hosts.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGED_MEMORY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGED_MEMORY_H_

#include <map>
#include <memory>

#include "common/base/mutex.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep::worker::collective::hierarchical {

// Threads: Allocate, Register and AnyMemory by the user, the others by any.
class StagedMemory final : public TransportMemory {
 public:
  // Borrowed; either may be null, not both.
  StagedMemory(Communicator* within, Communicator* between)
      : within_(within), between_(between) {}

  StatusOr<const Buffer*> Allocate(size_t bytes) override;
  StatusOr<const Buffer*> Register(void* data, size_t bytes) override;
  StatusOr<const Buffer*> AnyMemory() override;
  bool Owns(const Buffer* buffer) const override;

  // The buffer of each communicator for a buffer that is owned; null: it has
  // none.
  const Buffer* Within(const Buffer* buffer) const;
  const Buffer* Between(const Buffer* buffer) const;

  // The lock to hold while either communicator is called; Allocate and Register
  // hold it too. The communicators are made for one thread, and the user may
  // allocate while another thread starts an operation. Do not hold it while
  // waiting or for Abort.
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
  const Buffer* any_ ABSL_GUARDED_BY(calls_) = nullptr;
  mutable Mutex mu_;
  std::map<const Buffer*, std::unique_ptr<Staged>> staged_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_STAGED_MEMORY_H_
