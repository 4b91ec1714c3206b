// The descriptors of a session: those of its command, which the shim gets, and
// the daemon's ends.
#ifndef LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_STREAMS_H_
#define LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_STREAMS_H_

#include <optional>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/session.h"
#include "worker/agent/host/task_user.h"

namespace lockstep::worker::agent {

// The daemon's ends. None blocks.
struct SessionStreams {
  Fd in;
  Fd out;
  Fd err;      // None with a terminal.
  Fd control;  // Packets of worker/shim/session_report.h.
  bool terminal = false;
};

// `theirs` gets the command's, in the order of the shim's request. A terminal
// belongs to `user`, the daemon's own if absent.
StatusOr<SessionStreams> MakeSessionStreams(
    const std::optional<WindowSize>& terminal,
    const std::optional<TaskUser>& user, std::vector<Fd>* theirs);

// Of the session's terminal.
void SetWindowSize(const SessionStreams& streams, const WindowSize& size);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_STREAMS_H_
