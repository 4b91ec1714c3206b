// Sessions: commands that users run in a rank, besides its program.
//
// The command of a session is started like the rank's program (launch.h), with
// its cgroup, user, environment and directory. Its parent is a keeper, a child
// of the shim, which reports to the daemon and ends what the command has
// started: SIGHUP when the daemon hangs up or the command has ended, SIGKILL
// after a grace. So the shim can tell the processes of sessions from those of
// the rank. A keeper dies with its shim.
#ifndef LOCKSTEP_WORKER_SHIM_SESSION_H_
#define LOCKSTEP_WORKER_SHIM_SESSION_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/shim/io.h"
#include "worker/task/shim_messages.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

class Sessions {
 public:
  // Of one rank at a time. The daemon has a limit of its own.
  static constexpr size_t kMost = 64;

  // `spec` outlives this object.
  explicit Sessions(const task::ShimSpec& spec) : spec_(spec) {}

  // Starts the command of a request with its descriptors (shim_messages.h).
  // Returns false and a sentence if no keeper could be started; all else is
  // reported on the control socket.
  bool Start(const task::ShimRequest& request, std::vector<Fd> fds,
             std::string* error);

  // Returns whether `pid`, which has ended, was a keeper.
  bool OnChild(pid_t pid);
  // The rank has ended: keepers kill their commands.
  void End();
  // The keepers, whose processes are not to be signalled with the rank's. Empty
  // once they had their time after End.
  std::vector<pid_t> Spared(int64_t now) const;

 private:
  const task::ShimSpec& spec_;
  std::vector<pid_t> keepers_;
  int64_t spare_until_ = -1;  // MonoNanos; -1: for ever.
};

// The keeper in a container: `lockstep-shim --session -- PROGRAM ARGS`, started
// by the engine, with the control socket as its descriptor 3. Returns the
// command's exit code, or 128 + its signal.
int RunContainerSession(char** argv);

// `lockstep-shim --connect PORT`: joins standard input and output to a TCP
// connection to that port of the loopback address. Returns 0 after both
// directions have ended, and 1 with a sentence on standard error.
int RunConnect(const char* port);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SESSION_H_
