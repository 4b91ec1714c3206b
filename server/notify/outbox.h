// The notifications that one receiver has not taken yet, on disk:
//
//   DIR/UNIX-NANOS.ID     one notification
//
// Oldest first. Thread-compatible. Blocks on the disk.
#ifndef LOCKSTEP_SERVER_NOTIFY_OUTBOX_H_
#define LOCKSTEP_SERVER_NOTIFY_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "server/notify/notification.h"

namespace lockstep::server {

struct OutboxLimits {
  // The oldest go when more wait.
  size_t count = 1000;
  // What could not be delivered for this long is given up.
  Duration age = std::chrono::hours(24);
  // The wait after the first failure; it doubles up to the second.
  Duration first_wait = std::chrono::seconds(5);
  Duration longest_wait = std::chrono::minutes(10);
};

class Outbox {
 public:
  // `files` is borrowed. `dir` is made where it is missing.
  Outbox(FileSystem* files, std::string dir, const OutboxLimits& limits = {});

  // Reads what waits. What cannot be read is left alone.
  Status Load();
  // When it returns OK, the notification is durable. One that waits already is
  // not added again. Returns how many were dropped for it.
  StatusOr<size_t> Add(const Notification& notification);

  // The oldest, if it may be tried at `now`. Gives up what is too old, and
  // counts that in `*dropped`.
  std::optional<Notification> Next(Time now, size_t* dropped);
  // The one that Next returned was taken, or is refused for good.
  void Remove(const Notification& notification);
  // It was not taken; Next waits.
  void Failed(MonoTime now);
  // The receiver may have been repaired: Next waits no longer.
  void TryAtOnce();

  size_t size() const { return waiting_.size(); }
  // When the oldest happened.
  std::optional<WallTime> oldest() const;

 private:
  static std::string NameOf(const Notification& notification);

  FileSystem* const files_;
  const std::string dir_;
  const OutboxLimits limits_;
  // By the name of the file, which begins with the time.
  std::map<std::string, Notification> waiting_;
  int failures_ = 0;
  std::optional<MonoTime> not_before_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_NOTIFY_OUTBOX_H_
