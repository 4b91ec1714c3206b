// The user's side of a session: standard input, the terminal and signals.
#ifndef LOCKSTEP_CLIENT_CLI_SESSION_IO_H_
#define LOCKSTEP_CLIENT_CLI_SESSION_IO_H_

#include <signal.h>
#include <termios.h>

#include <functional>
#include <string>

#include "client/cli/cli.h"
#include "client/lib/session.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::cli {

// While it lives, the process's terminal passes each key on, Ctrl-C included.
// The destructor restores it.
class RawTerminal {
 public:
  // `fd` is a terminal.
  explicit RawTerminal(int fd);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  const int fd_;
  termios saved_ = {};
  bool changed_ = false;
};

// Size of the terminal; 24 x 80 if it is unknown.
v1::WindowSize SizeOfTerminal(int fd);

// While it lives, SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH are read from a
// descriptor and end nothing. Make it before any thread starts.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  int fd() const { return fd_.get(); }
  // Returns 0 if none came.
  int Take();

 private:
  sigset_t saved_ = {};
  Fd fd_;
};

// A shell of the rank, as good as there is.
inline constexpr const char* kShell[] = {
    "sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"};

struct SessionOptions {
  // The standard input is a terminal, and so are the command's streams.
  bool terminal = false;
  // The command gets the standard input.
  bool input = true;
};

// Runs the session to its end and returns the command's exit code, 128 + its
// signal, or that of a signal that ended this. Writes the command's output to
// the streams of `cli`. Without a terminal SIGINT, SIGTERM and SIGQUIT go to
// the command, and end the session when they come again. `held` is as above.
StatusOr<int> RunSession(const Cli& cli, Session* session,
                         const SessionOptions& options, HeldSignals* held);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_SESSION_IO_H_
