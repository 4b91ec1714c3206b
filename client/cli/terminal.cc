#include "client/cli/terminal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

namespace lockstep::cli {
namespace {

// Alternate screen, no cursor; and back, with colours off.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

sigset_t OurSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH}) {
    sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

std::vector<KeyPress> KeyParser::Feed(std::string_view bytes) {
  static const auto& sequences = *new std::map<std::string, Key>{
      {"\x1b[A", Key::kUp},      {"\x1b[B", Key::kDown},
      {"\x1b[C", Key::kRight},   {"\x1b[D", Key::kLeft},
      {"\x1bOA", Key::kUp},      {"\x1bOB", Key::kDown},
      {"\x1bOC", Key::kRight},   {"\x1bOD", Key::kLeft},
      {"\x1b[5~", Key::kPageUp}, {"\x1b[6~", Key::kPageDown},
      {"\x1b[H", Key::kHome},    {"\x1b[1~", Key::kHome}};
  std::vector<KeyPress> keys;
  for (const char c : bytes) {
    if (pending_.empty() && c != '\x1b') {
      keys.push_back({Key::kChar, c});
      continue;
    }
    pending_ += c;
    const auto found = sequences.find(pending_);
    if (found != sequences.end()) {
      keys.push_back({found->second, 0});
      pending_.clear();
      continue;
    }
    // A sequence ends with a letter or "~". Unknown ones are dropped.
    const bool starts =
        pending_.size() <= 2 && (pending_.size() < 2 || c == '[' || c == 'O');
    const bool ends = pending_.size() > 2 && ((c >= '@' && c <= '~'));
    if (ends || (!starts && pending_.size() <= 2) || pending_.size() > 16) {
      pending_.clear();
    }
  }
  return keys;
}

StatusOr<std::unique_ptr<Terminal>> Terminal::Open(int in, int out) {
  std::unique_ptr<Terminal> terminal(new Terminal(in, out));
  if (!isatty(in) || !isatty(out) || tcgetattr(in, &terminal->saved_) != 0) {
    return FailedPrecondition("stdin and stdout are not a terminal");
  }
  const sigset_t ours = OurSignals();
  terminal->signals_ = Fd(signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  terminal->wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!terminal->signals_ || !terminal->wake_) {
    return ErrnoStatus(errno, "signalfd");
  }
  pthread_sigmask(SIG_BLOCK, &ours, &terminal->saved_mask_);
  terminal->open_ = true;
  terminal->Enter();
  return terminal;
}

Terminal::~Terminal() { Close(); }

void Terminal::Close() {
  if (!open_) return;
  open_ = false;
  Leave();
  pthread_sigmask(SIG_SETMASK, &saved_mask_, nullptr);
}

void Terminal::Enter() {
  termios raw = saved_;
  // Ctrl-C and Ctrl-Z stay signals.
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  tcsetattr(in_, TCSANOW, &raw);
  WriteAll(out_, kEnter);
  ReadSize();
}

void Terminal::Leave() {
  WriteAll(out_, kLeave);
  tcsetattr(in_, TCSANOW, &saved_);
}

void Terminal::Suspend() {
  Leave();
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  // Pending for this thread; it stops the process once unblocked.
  raise(SIGTSTP);
  pthread_sigmask(SIG_UNBLOCK, &stop, nullptr);
  // Execution continues here after SIGCONT.
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  Enter();
}

void Terminal::ReadSize() {
  winsize size{};
  if (ioctl(out_, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_col > 0) width_ = size.ws_col;
  if (size.ws_row > 0) height_ = size.ws_row;
}

bool Terminal::Draw(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += lines[i] + "\x1b[K";
  }
  return WriteAll(out_, text + "\x1b[J");
}

void Terminal::TakeSignals(Events* events) {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) ==
         static_cast<ssize_t>(sizeof(info))) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGWINCH) {
      ReadSize();
      events->redraw = true;
    } else if (signal == SIGTSTP) {
      Suspend();
      events->redraw = true;
    } else {
      events->end_signal = signal;
    }
  }
}

Terminal::Events Terminal::Wait(Duration timeout) {
  Events events;
  pollfd fds[] = {
      {in_, POLLIN, 0}, {signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  if (poll(fds, 3, static_cast<int>(std::clamp<int64_t>(millis, 0, 60'000))) <=
      0) {
    return events;
  }
  TakeSignals(&events);
  uint64_t count = 0;
  (void)!read(wake_.get(), &count, sizeof(count));
  if (fds[0].revents & POLLIN) {
    char bytes[256];
    const ssize_t n = read(in_, bytes, sizeof(bytes));
    if (n > 0) {
      events.keys =
          parser_.Feed(std::string_view(bytes, static_cast<size_t>(n)));
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
      events.closed = true;
    }
  }
  if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) events.closed = true;
  return events;
}

void Terminal::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

}  // namespace lockstep::cli
