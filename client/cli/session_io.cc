#include "client/cli/session_io.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <ostream>
#include <thread>

namespace lockstep::cli {
namespace {

constexpr size_t kPiece = 32 << 10;

// Sends input, sizes and signals until Stop.
class InputThread {
 public:
  InputThread(Session* session, const SessionOptions& options,
              HeldSignals* held)
      : session_(session),
        options_(options),
        held_(held),
        stop_(eventfd(0, EFD_CLOEXEC)),
        thread_([this] { Run(); }) {}
  ~InputThread() {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    // A write does not wait any more: the session has ended.
    thread_.join();
  }
  // The signal that ended the session, or 0.
  int ended_by() const { return ended_by_; }

 private:
  void Run() {
    bool input = options_.input;
    if (!input) input = !SendEnd();
    while (true) {
      pollfd fds[] = {{stop_.get(), POLLIN, 0},
                      {held_->fd(), POLLIN, 0},
                      {input ? STDIN_FILENO : -1, POLLIN, 0}};
      if (poll(fds, 3, -1) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (fds[0].revents != 0) return;
      if (fds[1].revents != 0 && !OnSignal(held_->Take())) return;
      if (fds[2].revents != 0) input = SendInput();
    }
  }

  // Returns false at the end of the input.
  bool SendInput() {
    v1::SessionInput message;
    std::string* const data = message.mutable_data();
    data->resize(kPiece);
    const ssize_t n = read(STDIN_FILENO, data->data(), data->size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) {
      (void)SendEnd();
      return false;
    }
    data->resize(static_cast<size_t>(n));
    return session_->Write(message);
  }
  bool SendEnd() {
    v1::SessionInput message;
    message.set_end_of_data(true);
    return session_->Write(message);
  }

  // Returns false if the session ends by it.
  bool OnSignal(int signo) {
    if (signo == 0) return true;
    v1::SessionInput message;
    if (signo == SIGWINCH) {
      if (!options_.terminal) return true;
      *message.mutable_size() = SizeOfTerminal(STDIN_FILENO);
      (void)session_->Write(message);
      return true;
    }
    // The first one is the command's, unless it has a terminal, where the keys
    // are.
    if (!options_.terminal && signo != SIGHUP && !told_) {
      told_ = true;
      message.set_signal(signo);
      (void)session_->Write(message);
      return true;
    }
    ended_by_ = signo;
    session_->Cancel();
    return false;
  }

  Session* const session_;
  const SessionOptions options_;
  HeldSignals* const held_;
  const Fd stop_;
  bool told_ = false;
  std::atomic<int> ended_by_ = 0;
  std::thread thread_;  // Last: it uses the others.
};

// Returns the last message, if there was one.
std::optional<v1::SessionEnd> WriteOutput(const Cli& cli, Session* session) {
  std::optional<v1::SessionEnd> end;
  v1::SessionOutput output;
  while (session->Read(&output)) {
    switch (output.output_case()) {
      case v1::SessionOutput::kData:
        *cli.env->out << output.data() << std::flush;
        // Its reader is gone, as after `| head`.
        if (!*cli.env->out) session->Cancel();
        break;
      case v1::SessionOutput::kErrorData:
        *cli.env->err << output.error_data() << std::flush;
        break;
      case v1::SessionOutput::kEnd:
        end = output.end();
        break;
      default:
        break;
    }
  }
  return end;
}

}  // namespace

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  if (tcgetattr(fd, &saved_) != 0) return;
  termios raw = saved_;
  cfmakeraw(&raw);
  changed_ = tcsetattr(fd, TCSADRAIN, &raw) == 0;
}

RawTerminal::~RawTerminal() {
  if (changed_) tcsetattr(fd_, TCSADRAIN, &saved_);
}

v1::WindowSize SizeOfTerminal(int fd) {
  winsize window{};
  v1::WindowSize size;
  const bool known = ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_row > 0;
  size.set_rows(known ? window.ws_row : 24);
  size.set_columns(known ? window.ws_col : 80);
  return size;
}

HeldSignals::HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) {
    sigaddset(&held, signo);
  }
  pthread_sigmask(SIG_BLOCK, &held, &saved_);
  fd_.Reset(signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
}

HeldSignals::~HeldSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

int HeldSignals::Take() {
  signalfd_siginfo info;
  return read(fd_.get(), &info, sizeof(info)) == sizeof(info)
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

StatusOr<int> RunSession(const Cli& cli, Session* session,
                         const SessionOptions& options, HeldSignals* held) {
  std::optional<v1::SessionEnd> end;
  Status status;
  int ended_by = 0;
  {
    std::optional<RawTerminal> raw;
    if (options.terminal) raw.emplace(STDIN_FILENO);
    InputThread input(session, options, held);
    end = WriteOutput(cli, session);
    status = session->Finish();
    ended_by = input.ended_by();
  }
  if (!end) {
    if (ended_by != 0) return 128 + ended_by;
    // As a program that ends by SIGPIPE.
    if (!*cli.env->out) return 128 + SIGPIPE;
    if (!status.ok()) return status;
    return Unavailable("the session ended without a result");
  }
  if (!end->message().empty()) {
    *cli.env->err << "lockstep: " << Printable(end->message()) << "\n";
  }
  return end->exit_code();
}

}  // namespace lockstep::cli
