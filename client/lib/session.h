// A session in a rank: see JobService.OpenSession.
#ifndef LOCKSTEP_CLIENT_LIB_SESSION_H_
#define LOCKSTEP_CLIENT_LIB_SESSION_H_

#include <memory>

#include "client/lib/client.h"
#include "common/base/status.h"
#include "lockstep/v1/session.pb.h"

namespace lockstep::cli {

// One thread reads, and any others write and cancel.
class Session {
 public:
  virtual ~Session() = default;
  // Waits until the message is on its way. Returns false if the session has
  // ended, as Read will tell.
  virtual bool Write(const v1::SessionInput& input) = 0;
  // Waits for the next message. Returns false at the end.
  virtual bool Read(v1::SessionOutput* output) = 0;
  // Call it after Read returned false. OK: the last message was `end`.
  virtual Status Finish() = 0;
  // Ends the session soon: its command gets SIGHUP.
  virtual void Cancel() = 0;
};

// Its errors come from Session::Finish. `client` outlives it.
std::unique_ptr<Session> OpenSession(Client* client,
                                     const v1::SessionRequest& request);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LIB_SESSION_H_
