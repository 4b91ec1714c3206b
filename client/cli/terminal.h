// A terminal whose whole screen is ours for a while: raw keys, no cursor, an
// alternate screen, and signals as events, so that every way out leaves the
// terminal as it was found.
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

namespace lockstep {

// Escape sequences of xterm and what is like it; others are the character.
enum class Key { kUp, kDown, kLeft, kRight, kPageUp, kPageDown, kHome, kChar };

struct KeyPress {
  Key key = Key::kChar;
  char character = 0;

  bool operator==(const KeyPress&) const = default;
};

// Keys out of the bytes a terminal sends; a sequence may come in pieces. Pure.
class KeyParser {
 public:
  std::vector<KeyPress> Feed(std::string_view bytes);

 private:
  std::string pending_;
};

// Not thread-safe. One at a time in a process.
class Terminal {
 public:
  struct Events {
    std::vector<KeyPress> keys;
    // A signal that asks us to end; 0: none.
    int end_signal = 0;
    // The size changed, or we came back from a stop: draw again.
    bool redraw = false;
    // The terminal is gone.
    bool closed = false;
  };

  // Takes the terminal behind `in` and `out`, and blocks SIGINT, SIGTERM,
  // SIGHUP, SIGQUIT, SIGTSTP and SIGWINCH, which become events; to be called
  // before any thread starts, as others would still take them.
  // FailedPrecondition: they are no terminal.
  static StatusOr<std::unique_ptr<Terminal>> Open(int in, int out);
  ~Terminal();
  // Restores everything; only Wake may be called after it.
  void Close();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // At least 1 x 1.
  int width() const { return width_; }
  int height() const { return height_; }
  // False: it cannot be written to any more.
  bool Draw(const std::vector<std::string>& lines);
  // What happens until `timeout`; Wake() from any thread ends it early. At
  // SIGTSTP it gives the terminal back, stops the process, and takes it again
  // when the process goes on.
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

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_TERMINAL_H_
