// Reports the daemon's state to the service manager by the datagrams of
// sd_notify(3).
//
// The protocol is documented as stable: a line or two to a Unix socket named in
// the environment. libsystemd would bring five compression and encryption
// libraries into every daemon.
//
// Not thread-safe: belongs to the thread whose liveness it reports. No function
// blocks or fails, even if the manager does not read.
#ifndef LOCKSTEP_COMMON_OS_NOTIFY_H_
#define LOCKSTEP_COMMON_OS_NOTIFY_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/fd.h"

namespace lockstep {

class Notifier {
 public:
  // For this process: $NOTIFY_SOCKET, and $WATCHDOG_USEC if $WATCHDOG_PID is
  // this process or not set. Removes them from the environment, so that no
  // child notifies the manager. Call it before any thread starts.
  static Notifier FromEnvironment();

  // `socket`: a path, or "@name" for an abstract socket; empty for no
  // notifications. `watchdog`: the manager acts after this time without a ping;
  // 0 if it does not watch.
  Notifier(const std::string& socket, Duration watchdog);

  bool enabled() const { return static_cast<bool>(socket_); }

  // The daemon serves. The watchdog's time begins.
  void Ready(MonoTime now);
  // One line that is shown with the unit's state. Sent only when it changes, so
  // it may be set in every iteration.
  void SetStatus(std::string_view line);
  void Stopping();

  // Pings at most once in a third of the watchdog's time. Only the daemon's own
  // loop may call it, once per iteration, so that a stuck loop is detected.
  void Turn(MonoTime now);
  // The longest allowed time between iterations; Duration::max() without a
  // watchdog.
  Duration longest_turn() const;

 private:
  // Returns false if the manager's socket is full. Status and readiness are
  // then sent in a later iteration; a ping is not.
  bool Send(std::string_view text) const;

  Fd socket_;
  std::string address_;  // Bytes of a sockaddr_un.
  Duration watchdog_;
  bool ready_ = false;
  bool said_ready_ = false;
  MonoTime last_ping_;
  std::string status_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_NOTIFY_H_
