// The way of messages from one rank to another: a communicator of the two, of
// which the sender is rank 0.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_PAIR_LINK_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_PAIR_LINK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/process_group/group_options.h"

namespace lockstep::worker::process_group {

// One thread forms and moves; Abort is for any.
class PairLink {
 public:
  // `options` are those of the group, with the backend that it took. This rank
  // is `from` or `to`.
  PairLink(const GroupOptions& options, int from, int to);
  ~PairLink();
  PairLink(const PairLink&) = delete;
  PairLink& operator=(const PairLink&) = delete;

  // Moves `bytes` from the sender's `data` to the receiver's; the first time,
  // forms the link through the store. Both give the same number of bytes.
  // Errors name the ranks of the group; after one, the link is broken.
  Status Move(void* data, size_t bytes, MonoTime deadline);

  // Ends what is under way, now and later, with Aborted and `reason`.
  void Abort(const std::string& reason);

 private:
  class Store;

  Status Form(MonoTime deadline);
  // With the ranks of the group in place of those of the pair.
  Status Translate(const Status& status) const;

  const GroupOptions options_;
  const int from_;
  const int to_;
  const std::unique_ptr<Store> store_;
  // The mover's.
  const collective::Buffer* any_ = nullptr;
  Mutex mu_;
  // Set once.
  std::unique_ptr<collective::Communicator> communicator_ ABSL_GUARDED_BY(mu_);
  Status aborted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_PAIR_LINK_H_
