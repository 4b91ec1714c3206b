// Tells the site's receivers what happens, and keeps what they have not taken.
//
//   DIR/seen              the time up to which everything is in the outboxes
//   DIR/RECEIVER/...      an outbox each
//
// A notification is in all outboxes before it counts as seen. So a crash loses
// none, and may repeat the newest under the same id.
//
// Thread-safe. One thread looks, and one for each receiver sends, so that a
// slow receiver delays no other.
#ifndef LOCKSTEP_SERVER_NOTIFY_DISPATCHER_H_
#define LOCKSTEP_SERVER_NOTIFY_DISPATCHER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/repeating_thread.h"
#include "common/base/status.h"
#include "server/coordinator/snapshot.h"
#include "server/notify/notification_rules.h"
#include "server/notify/outbox.h"
#include "server/notify/receivers.h"

namespace lockstep::server {

struct DispatcherOptions {
  std::string cluster;
  // Made where it is missing.
  std::string dir;
  Receivers receivers;
  OutboxLimits limits;
  // Between two looks, and between two tries to send.
  Duration interval = std::chrono::seconds(1);
  // The state with the jobs that ended within `linger`.
  std::function<CoordinatorView(Duration linger)> view;
  // Deliver, but for tests.
  std::function<Status(const Receiver&, const Notification&, WallTime,
                       const std::atomic<bool>& stop)>
      deliver;
};

// What one receiver got and did not get.
struct ReceiverStats {
  std::string name;
  uint64_t sent = 0;
  // Tries that failed.
  uint64_t failed = 0;
  // Given up: refused for good, too old or too many.
  uint64_t dropped = 0;
  size_t waiting = 0;
  // When the oldest that waits happened.
  std::optional<WallTime> oldest;
};

class Dispatcher {
 public:
  // Opens the outboxes and starts. `files` and `clock` outlive this object.
  static StatusOr<std::unique_ptr<Dispatcher>> Start(DispatcherOptions options,
                                                     FileSystem* files,
                                                     const Clock* clock);
  // Stops deliveries that run; they are repeated after the next start.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // From now on these are the receivers; waits for no delivery. What waits for
  // a receiver goes at once to the one that has its name now. What waits for
  // one that is gone stays in its folder. An error names the receiver whose
  // outbox does not open, and nothing changes.
  Status SetReceivers(const Receivers& receivers);
  // In the order of the file, and since the receiver was added.
  std::vector<ReceiverStats> Stats() const;

 private:
  class Sender;
  Dispatcher(DispatcherOptions options, FileSystem* files, const Clock* clock);
  Status Open();
  Status WriteSeen() const;
  using Senders = std::vector<std::shared_ptr<Sender>>;
  // Puts what happened since the last look into the outboxes.
  void Look();
  Senders senders() const;

  const DispatcherOptions options_;
  FileSystem* const files_;
  const Clock* const clock_;
  // Of the looking thread.
  NotificationRules rules_;
  WallTime seen_{};
  bool fresh_ = true;
  mutable Mutex mu_;
  std::string url_ ABSL_GUARDED_BY(mu_);
  Senders senders_ ABSL_GUARDED_BY(mu_);
  // Were removed, and end soon. The looking thread waits for them.
  Senders removed_ ABSL_GUARDED_BY(mu_);
  // Last: it uses the others.
  std::unique_ptr<RepeatingThread> thread_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_NOTIFY_DISPATCHER_H_
