// Profiles of a rank's Python processes by py-spy, as the daemon's child.
#ifndef LOCKSTEP_WORKER_AGENT_SESSIONS_PROFILE_H_
#define LOCKSTEP_WORKER_AGENT_SESSIONS_PROFILE_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/model/session.h"
#include "worker/agent/sessions/session_pump.h"
#include "worker/evidence/stacks.h"

namespace lockstep::worker::agent {

struct ProfileTarget {
  NodeName node;
  // The process whose tree contains the rank.
  pid_t shim = 0;
  evidence::StackTools tools;
  // Of the daemon, for py-spy's file.
  std::string directory;
};

// The command line of py-spy. Pure.
std::vector<std::string> PySpyArguments(const std::string& py_spy, int64_t pid,
                                        const ProfileSession& profile,
                                        const std::string& output);

// Records, and sends the file as the session's output. Blocks until the call
// has ended.
void RunProfile(const ProfileTarget& target, const ProfileSession& profile,
                const v1::SessionStarted& started, SessionCall* call,
                Bell* bell);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_SESSIONS_PROFILE_H_
