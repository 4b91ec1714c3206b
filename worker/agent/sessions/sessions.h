// Sessions in ranks of this node: starts their commands by the ranks' shims and
// joins them to calls to the coordinator.
//
// Belongs to the event loop's thread. Each session has a thread of its own,
// which ends with it.
#ifndef LOCKSTEP_WORKER_AGENT_SESSIONS_SESSIONS_H_
#define LOCKSTEP_WORKER_AGENT_SESSIONS_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "common/model/session.h"
#include "lockstep/v1/session.pb.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/sessions/profile.h"
#include "worker/agent/sessions/session_call.h"
#include "worker/agent/sessions/session_pump.h"

namespace lockstep::worker::agent {

// What sessions need of ranks.
struct SessionHooks {
  // Starts a command in a rank that runs, with the descriptors of its streams
  // (worker/shim/session.h). Errors say why not.
  std::function<Status(const RankRef& ref, const SessionRequest& request,
                       const std::vector<int>& fds)>
      start;
  // What to profile a rank with. Errors say why it cannot be.
  std::function<StatusOr<ProfileTarget>(const RankRef& ref)> profile;
};

class Sessions {
 public:
  static constexpr size_t kMost = 64;

  // Pointers are borrowed. Without `allowed` each session is refused.
  Sessions(const DaemonSetup* setup, EventLoop* loop, bool allowed,
           SessionHooks hooks);
  // Ends all sessions: their commands get SIGHUP.
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // Call it before the first order.
  void SetClient(std::unique_ptr<SessionClient> client) {
    client_ = std::move(client);
  }
  void OnOrder(const SessionOrder& order);

 private:
  struct Open {
    Bell bell;
    std::unique_ptr<SessionCall> call;
    std::thread thread;
  };
  using Work = std::function<void(SessionCall*, Bell*)>;

  // What the session's thread will do.
  StatusOr<Work> Begin(const SessionOrder& order);
  void OnEnded(uint64_t id);

  const DaemonSetup* const setup_;
  EventLoop* const loop_;
  const bool allowed_;
  const SessionHooks hooks_;
  std::unique_ptr<SessionClient> client_;
  std::map<uint64_t, std::unique_ptr<Open>> open_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_SESSIONS_SESSIONS_H_
