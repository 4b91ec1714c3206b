// Moves the bytes of one session between its command and its call.
//
// It reads from the command when the call has taken the last message, and reads
// the call's next message when the command has taken the last one: a slow side
// makes the other wait, and at most 64 KiB of each direction are here.
#ifndef LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_PUMP_H_
#define LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_PUMP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"
#include "lockstep/v1/session.pb.h"
#include "worker/agent/sessions/session_call.h"
#include "worker/agent/sessions/session_streams.h"
#include "worker/shim/session_report.h"

namespace lockstep::worker::agent {

// An eventfd that other threads ring.
class Bell {
 public:
  Bell();
  void Ring();
  void Clear();
  int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

// Why a session could not begin, as its last message.
v1::SessionOutput NotStarted(const Status& why);

class SessionPump {
 public:
  // `started` is sent when the command runs. `bell`, which outlives the pump,
  // is rung by the call.
  SessionPump(SessionStreams streams, v1::SessionStarted started,
              SessionCall* call, Bell* bell)
      : streams_(std::move(streams)),
        started_(std::move(started)),
        call_(call),
        bell_(bell) {}

  // Returns after the last message has gone, or the call has ended; the command
  // is told by the end of its streams. Call it once.
  void Run();

 private:
  void Turn();
  int PollTimeout() const;
  void TakeInput();
  void Apply(const v1::SessionInput& input);
  void WriteInput();
  void ReadControl();
  void TakeReport(const shim::SessionReport& report);
  // Sends a piece of output, or notices the end of `from`.
  void ReadOutput(Fd* from, bool error);
  void SetEnd(int code, const std::string& message, bool not_started);
  void SendWhatIsDue();

  SessionStreams streams_;
  const v1::SessionStarted started_;
  SessionCall* const call_;
  Bell* const bell_;
  // Input that the command has not taken.
  std::string input_;
  size_t input_done_ = 0;
  // Its next message is asked for when the input is written.
  bool writes_ = false;
  bool tells_start_ = false;
  // The last message, and until when output is awaited before it.
  std::optional<v1::SessionEnd> end_;
  MonoTime drain_until_{};
  bool end_sent_ = false;
};

// Waits until the call takes the message. Returns false if the call has ended.
bool Send(v1::SessionOutput message, SessionCall* call, Bell* bell);
// Sends the last message and waits until it has gone.
void SendLast(v1::SessionOutput last, SessionCall* call, Bell* bell);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_SESSIONS_SESSION_PUMP_H_
