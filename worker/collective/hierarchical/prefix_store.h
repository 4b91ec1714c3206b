// A part of a rendezvous store: every key with a prefix.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PREFIX_STORE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PREFIX_STORE_H_

#include <string>
#include <utility>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective::hierarchical {

class PrefixStore final : public RendezvousStore {
 public:
  // `store` is borrowed.
  PrefixStore(RendezvousStore* store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  Status Put(const std::string& key, std::string_view value) override {
    return store_->Put(prefix_ + key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    return store_->Get(prefix_ + key, deadline);
  }

 private:
  RendezvousStore* const store_;
  const std::string prefix_;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_PREFIX_STORE_H_
