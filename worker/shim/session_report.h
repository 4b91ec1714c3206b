// Messages of a session's keeper (session.h) and the worker daemon on the
// control socket: one struct per packet. Its end, on the daemon's side,
// ends the session.
#ifndef LOCKSTEP_WORKER_SHIM_SESSION_REPORT_H_
#define LOCKSTEP_WORKER_SHIM_SESSION_REPORT_H_

#include <string.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace lockstep::worker::shim {

// Keeper -> daemon.
struct SessionReport {
  enum class Kind : uint8_t {
    kStarted = 1,     // The command's exec succeeded.
    kNotStarted = 2,  // `value` is errno, `message` a sentence.
    kEnded = 3,       // `value` is the command's wait status; `message` is
                      // kRankEnded if it was killed with its rank.
  };
  Kind kind = Kind::kStarted;
  int32_t value = 0;
  char message[1024] = {};

  void SetMessage(const std::string& text) {
    memset(message, 0, sizeof(message));
    memcpy(message, text.data(), std::min(text.size(), sizeof(message) - 1));
  }
};

// Daemon -> keeper.
struct SessionSignal {
  int32_t signo = 0;
};

inline constexpr char kRankEnded[] = "the rank has ended";

// In a container the control socket of a session has this number.
inline constexpr int kSessionControlFd = 3;

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SESSION_REPORT_H_
