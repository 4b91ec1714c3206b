// The daemon's side of a session's call to the coordinator (ServeSession).
#ifndef LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_CALL_H_
#define LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "lockstep/v1/session.pb.h"

namespace lockstep::worker::agent {

// One message of each direction at a time, so that neither side waits in
// memory. Safe from any thread.
class SessionCall {
 public:
  // Ends the call, if it has not ended, and waits for that.
  virtual ~SessionCall() = default;

  // The coordinator has taken the last message.
  virtual bool CanWrite() const = 0;
  // REQUIRES: CanWrite().
  virtual void Write(v1::SessionOutput message) = 0;
  // The next message; nullopt if there is none yet. One that was taken is
  // followed by no other until Next.
  virtual std::optional<v1::SessionInput> Take() = 0;
  virtual void Next() = 0;
  // Ends the call from this side; `ended` follows.
  virtual void Cancel() = 0;
  // No Write follows.
  virtual void FinishWrites() = 0;
  // The call is over: no message comes or goes.
  virtual bool ended() const = 0;
};

class SessionClient {
 public:
  virtual ~SessionClient() = default;
  // Opens the call of session `id`, whose `accept` it has sent. `wake` is
  // called, from other threads, when a call of the result may have another
  // answer than before.
  virtual std::unique_ptr<SessionCall> Open(uint64_t id,
                                            std::function<void()> wake) = 0;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_CALL_H_
