// The channels of a rank: one for each peer and direction, made when it is
// first used.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_CHANNELS_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_CHANNELS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/process_group/channel.h"

namespace lockstep::worker::process_group {

// Safe from any thread.
class Channels {
 public:
  // `options` are those of the group, with the backend that it took.
  explicit Channels(const GroupOptions& options) : options_(options) {}

  // As Channel::Push.
  Status Push(std::shared_ptr<Work> work);
  void Abort(const std::string& reason);
  // Ends what is under way with Aborted, and waits for that. Last.
  void Free();

 private:
  const GroupOptions options_;
  Mutex mu_;
  std::map<std::pair<int, bool>, std::unique_ptr<Channel>> channels_
      ABSL_GUARDED_BY(mu_);
  Status aborted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_CHANNELS_H_
