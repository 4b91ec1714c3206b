// Tells the service manager how the daemon is: the datagrams of sd_notify(3).
//
// The protocol is a line or two to a Unix socket whose name is in the
// environment, and documented as stable. libsystemd would do the same, and
// bring five compression and encryption libraries into every daemon.
//
// Not thread-safe: belongs to the thread whose life it tells of. Nothing here
// blocks or fails: a manager that does not listen is not our trouble.
#ifndef LOCKSTEP_COMMON_OS_NOTIFY_H_
#define LOCKSTEP_COMMON_OS_NOTIFY_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/fd.h"

namespace lockstep {

class Notifier {
 public:
  // Of this process: $NOTIFY_SOCKET, and $WATCHDOG_USEC where $WATCHDOG_PID is
  // ours or not set. Takes them out of the environment, so that no child
  // speaks for us; call before any thread starts.
  static Notifier FromEnvironment();

  // `socket`: a path, or "@name" of an abstract one; empty: tells nobody.
  // `watchdog`: the manager acts when it has heard nothing for so long; 0: it
  // does not watch.
  Notifier(const std::string& socket, Duration watchdog);

  bool enabled() const { return static_cast<bool>(socket_); }

  // Serving. The watchdog's time begins here.
  void Ready(MonoTime now);
  // One line for people, shown beside the unit's state. Sent when it changed:
  // to be given on each turn.
  void SetStatus(std::string_view line);
  void Stopping();

  // To be called by the daemon's own loop on each turn, and by nothing else:
  // that this comes late is how a stuck loop is found. Pings at most once in a
  // third of the watchdog's time.
  void Turn(MonoTime now);
  // How often the loop must turn at least; Duration::max(): as it likes.
  Duration longest_turn() const;

 private:
  // False: the manager's socket has no room for it. A status and that it is
  // ready are then told on a later turn; a ping is not.
  bool Send(std::string_view text) const;

  Fd socket_;
  std::string address_;  // A sockaddr_un's bytes.
  Duration watchdog_;
  bool ready_ = false;
  bool said_ready_ = false;
  MonoTime last_ping_;
  std::string status_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_NOTIFY_H_
