#include "worker/container/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/os/marked_processes.h"
#include "common/os/process.h"
#include "worker/container/session_io.h"

namespace lockstep::worker::container {
namespace {

constexpr size_t kMaxOutput = 4 << 20;
constexpr size_t kMaxOutputLine = 4096;
// What holds the pipes after the command itself has ended.
constexpr Duration kDrainTime = std::chrono::milliseconds(200);
constexpr Duration kStopTime = std::chrono::seconds(1);
// How often in its time it is asked whether the command is idle.
constexpr int kIdleSamples = 12;

class Runner {
 public:
  Runner(const Command& command, MonoTime deadline)
      : command_(command), deadline_(deadline) {}

  StatusOr<CommandResult> Run() {
    LOCKSTEP_ASSIGN_OR_RETURN(Pipe out, MakePipe());
    LOCKSTEP_ASSIGN_OR_RETURN(Pipe err, MakePipe());
    SpawnOptions options;
    options.program = command_.argv[0];
    options.argv = command_.argv;
    options.env = command_.env;
    options.env.push_back(fmt::format("{}=engine", kToolVariable));
    options.stdout_fd = out.write.get();
    options.stderr_fd = err.write.get();
    options.new_session = true;
    LOCKSTEP_ASSIGN_OR_RETURN(const Process process, Spawn(options));
    out.write.Reset();
    err.write.Reset();
    out_ = std::move(out.read);
    err_ = std::move(err.read);
    last_sign_ = MonotonicNow();
    const Status status = Follow(process);
    const auto exit =
        StopProcess(process, status.ok() ? kDrainTime : kStopTime);
    LOCKSTEP_RETURN_IF_ERROR(status);
    LOCKSTEP_RETURN_IF_ERROR(exit.status());
    EndLine();
    result_.code = exit->signal != 0 ? 128 + exit->signal : exit->code;
    return std::move(result_);
  }

 private:
  // Until the process has ended and its pipes are empty.
  Status Follow(const Process& process) {
    MonoTime ended{};
    for (;;) {
      const MonoTime now = MonotonicNow();
      if (now >= deadline_) return Late("did not finish before the deadline");
      if (ended == MonoTime{} && IsIdle(process.id.pid, now)) {
        return Late(fmt::format("made no progress for {:g} s",
                                ToSeconds(command_.idle_limit)));
      }
      if (ended != MonoTime{} && now - ended > kDrainTime) return OkStatus();
      pollfd fds[] = {
          {out_.get(), POLLIN, 0},
          {err_.get(), POLLIN, 0},
          {ended == MonoTime{} ? process.pidfd.get() : -1, POLLIN, 0}};
      auto wait = std::min<Duration>(
          ended == MonoTime{} ? std::chrono::seconds(1) : kDrainTime,
          deadline_ - now);
      if (command_.idle_limit > Duration{}) {
        wait = std::min(wait, command_.idle_limit / kIdleSamples);
      }
      const int ready = poll(
          fds, 3, static_cast<int>(wait / std::chrono::milliseconds(1)) + 1);
      if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
      if (fds[0].revents != 0) TakeOutput();
      if (fds[1].revents != 0) TakeErrors();
      if (fds[2].revents != 0) ended = MonotonicNow();
      if (cancelled_ || (ready == 0 && !Tell())) {
        return Cancelled("{} was cancelled", command_.argv[0]);
      }
      if (ended != MonoTime{} && !out_ && !err_) return OkStatus();
    }
  }

  Status Late(const std::string& how) const {
    return DeadlineExceeded(
        "{} {} {}{}", command_.argv[0],
        command_.argv.size() > 1 ? command_.argv[1] : std::string(), how,
        result_.last_error.empty() ? "" : ": " + result_.last_error);
  }

  // A fetching engine prints little; its sockets and files show progress.
  bool IsIdle(pid_t session, MonoTime now) {
    if (command_.idle_limit <= Duration{}) return false;
    if (now - last_sample_ >= command_.idle_limit / kIdleSamples) {
      last_sample_ = now;
      const auto moved = BytesMoved(session);
      if (!moved || moved != moved_) last_sign_ = now;
      moved_ = moved;
    }
    return now - last_sign_ >= command_.idle_limit;
  }

  void TakeOutput() {
    char buffer[16384];
    const ssize_t size = read(out_.get(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) return;
    if (size <= 0) return out_.Reset();
    last_sign_ = MonotonicNow();
    const size_t room = kMaxOutput - result_.output.size();
    result_.output.append(buffer, std::min(room, static_cast<size_t>(size)));
  }

  void TakeErrors() {
    char buffer[16384];
    const ssize_t size = read(err_.get(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) return;
    if (size <= 0) return err_.Reset();
    last_sign_ = MonotonicNow();
    for (ssize_t i = 0; i < size; ++i) {
      // A progress bar is redrawn after "\r".
      if (buffer[i] == '\n' || buffer[i] == '\r') {
        EndLine();
      } else if (line_.size() < kMaxOutputLine) {
        line_ += buffer[i];
      }
    }
  }

  void EndLine() {
    if (line_.empty()) return;
    result_.last_error = std::exchange(line_, std::string());
    if (!Tell()) cancelled_ = true;
  }

  bool Tell() {
    return !command_.on_line || command_.on_line(result_.last_error);
  }

  const Command& command_;
  const MonoTime deadline_;
  Fd out_;
  Fd err_;
  std::string line_;
  bool cancelled_ = false;
  MonoTime last_sign_{};
  MonoTime last_sample_{};
  std::optional<uint64_t> moved_;
  CommandResult result_;
};

}  // namespace

StatusOr<CommandResult> RunCommand(const Command& command, MonoTime deadline) {
  return Runner(command, deadline).Run();
}

}  // namespace lockstep::worker::container
