// Full-screen use of a terminal: raw keys, no cursor, an alternate screen.
// Signals become events, so that every exit restores the terminal.
#ifndef LOCKSTEP_CLIENT_CLI_TERMINAL_H_
#define LOCKSTEP_CLIENT_CLI_TERMINAL_H_

#include <signal.h>
#include <termios.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::cli {

// Escape sequences of xterm and compatible terminals. Others are kChar.
enum class Key { kUp, kDown, kLeft, kRight, kPageUp, kPageDown, kHome, kChar };

struct KeyPress {
  Key key = Key::kChar;
  char character = 0;

  bool operator==(const KeyPress&) const = default;
};

// Decodes keys from a terminal's bytes; a sequence may come in pieces. Pure.
class KeyParser {
 public:
  std::vector<KeyPress> Feed(std::string_view bytes);

 private:
  std::string pending_;
};

// Not thread-safe. One per process at a time.
class Terminal {
 public:
  struct Events {
    std::vector<KeyPress> keys;
    // The termination signal that arrived, or 0.
    int end_signal = 0;
    // The size changed or the process was continued: draw again.
    bool redraw = false;
    // The terminal is gone.
    bool closed = false;
  };

  // Opens the terminal behind `in` and `out`, and blocks SIGINT, SIGTERM,
  // SIGHUP, SIGQUIT, SIGTSTP and SIGWINCH, which become events. Call it before
  // any thread starts, because other threads would still receive them.
  // FailedPrecondition if they are not a terminal.
  static StatusOr<std::unique_ptr<Terminal>> Open(int in, int out);
  ~Terminal();
  // Restores the terminal. Only Wake may be called after it.
  void Close();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // At least 1 x 1.
  int width() const { return width_; }
  int height() const { return height_; }
  // Returns false if the terminal cannot be written.
  bool Draw(const std::vector<std::string>& lines);
  // Returns the events until `timeout`. Wake() from any thread returns early.
  // At SIGTSTP it releases the terminal, stops the process, and takes the
  // terminal again when the process continues.
  Events Wait(Duration timeout);
  void Wake();

 private:
  Terminal(int in, int out) : in_(in), out_(out) {}
  void Enter();
  void Leave();
  void Suspend();
  void ReadSize();
  void TakeSignals(Events* events);

  const int in_;
  const int out_;
  termios saved_ = {};
  sigset_t saved_mask_ = {};
  bool open_ = false;
  Fd signals_;
  Fd wake_;
  KeyParser parser_;
  int width_ = 80;
  int height_ = 24;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TERMINAL_H_
