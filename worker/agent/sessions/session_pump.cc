#include "worker/agent/sessions/session_pump.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/model/session.h"

namespace lockstep::worker::agent {
namespace {

using shim::SessionReport;

// What the command's last output gets after its end: a process that it left
// behind may hold its streams, and is killed within two seconds.
constexpr Duration kOutputTime = std::chrono::seconds(3);
// For the last message to be taken.
constexpr Duration kLastMessageTime = std::chrono::seconds(10);

int MillisUntil(MonoTime time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(time - MonotonicNow(), Duration::zero()));
  return static_cast<int>(std::min<int64_t>(left.count(), 60'000));
}

void WaitFor(const Bell& bell, MonoTime until) {
  pollfd readable = {bell.fd(), POLLIN, 0};
  (void)poll(&readable, 1, MillisUntil(until));
}

// Until the coordinator has ended the call, which it does after the last
// message.
void AwaitEnd(SessionCall* call, Bell* bell) {
  const MonoTime until = MonotonicNow() + kLastMessageTime;
  for (;;) {
    bell->Clear();
    if (call->ended() || MonotonicNow() >= until) return;
    WaitFor(*bell, until);
  }
}

}  // namespace

Bell::Bell() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Bell::Ring() {
  const uint64_t one = 1;
  (void)!write(fd_.get(), &one, sizeof(one));
}

void Bell::Clear() {
  uint64_t count = 0;
  (void)!read(fd_.get(), &count, sizeof(count));
}

v1::SessionOutput NotStarted(const Status& why) {
  v1::SessionOutput output;
  v1::SessionEnd* const end = output.mutable_end();
  end->set_exit_code(126);
  end->set_not_started(true);
  end->set_message(Message(why));
  return output;
}

void SessionPump::Run() {
  while (!call_->ended() && !(end_sent_ && call_->CanWrite())) Turn();
  if (end_sent_) call_->FinishWrites();
  AwaitEnd(call_, bell_);
}

void SessionPump::Turn() {
  bell_->Clear();
  TakeInput();
  SendWhatIsDue();
  const bool may_write = call_->CanWrite() && !end_sent_;
  const bool has_input = input_done_ < input_.size();
  const auto when = [](bool wanted, const Fd& fd) {
    return wanted ? fd.get() : -1;
  };
  pollfd fds[] = {{bell_->fd(), POLLIN, 0},
                  {streams_.control.get(), POLLIN, 0},
                  {when(has_input, streams_.in), POLLOUT, 0},
                  {when(may_write, streams_.out), POLLIN, 0},
                  {when(may_write, streams_.err), POLLIN, 0}};
  if (call_->ended() || poll(fds, std::size(fds), PollTimeout()) < 0) return;
  // The start comes first.
  if (fds[1].revents != 0) ReadControl();
  if (fds[2].revents != 0) WriteInput();
  if (fds[3].revents != 0 && !tells_start_) ReadOutput(&streams_.out, false);
  if (fds[4].revents != 0 && !tells_start_) ReadOutput(&streams_.err, true);
}

int SessionPump::PollTimeout() const {
  // The end is sent when it is due, or waits for the call.
  return end_ && !end_sent_ ? MillisUntil(drain_until_) : -1;
}

void SessionPump::TakeInput() {
  while (input_done_ == input_.size()) {
    const auto input = call_->Take();
    if (!input) return;
    Apply(*input);
    if (input_done_ == input_.size()) call_->Next();
  }
}

void SessionPump::Apply(const v1::SessionInput& input) {
  switch (input.input_case()) {
    case v1::SessionInput::kData:
      // What comes after the end has no reader.
      if (!streams_.in) return;
      input_ = input.data();
      input_done_ = 0;
      return WriteInput();
    case v1::SessionInput::kEndOfData:
      if (!streams_.terminal) streams_.in.Reset();
      return;
    case v1::SessionInput::kSize:
      return SetWindowSize(streams_,
                           {input.size().rows(), input.size().columns()});
    case v1::SessionInput::kSignal: {
      const shim::SessionSignal order = {input.signal()};
      if (!streams_.control) return;
      (void)!send(streams_.control.get(), &order, sizeof(order),
                  MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
    case v1::SessionInput::kOpen:
    case v1::SessionInput::INPUT_NOT_SET:
      return;
  }
}

void SessionPump::WriteInput() {
  while (input_done_ < input_.size()) {
    const ssize_t n = write(streams_.in.get(), input_.data() + input_done_,
                            input_.size() - input_done_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      writes_ = true;
      return;
    }
    if (n < 0) {
      // The command has closed its input.
      streams_.in.Reset();
      input_done_ = input_.size();
      break;
    }
    input_done_ += static_cast<size_t>(n);
  }
  if (std::exchange(writes_, false)) call_->Next();
}

void SessionPump::ReadControl() {
  SessionReport report;
  const ssize_t n = recv(streams_.control.get(), &report, sizeof(report), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == static_cast<ssize_t>(sizeof(report))) return TakeReport(report);
  streams_.control.Reset();
  // A keeper tells an end, unless it was killed with its rank.
  SetEnd(128 + 9, shim::kRankEnded, false);
}

void SessionPump::TakeReport(const SessionReport& report) {
  const std::string message(report.message,
                            strnlen(report.message, sizeof(report.message)));
  switch (report.kind) {
    case SessionReport::Kind::kStarted:
      tells_start_ = true;
      return;
    case SessionReport::Kind::kNotStarted:
      return SetEnd(report.value == ENOENT ? 127 : 126, message, true);
    case SessionReport::Kind::kEnded:
      return SetEnd(WIFSIGNALED(report.value) ? 128 + WTERMSIG(report.value)
                                              : WEXITSTATUS(report.value),
                    message, false);
  }
}

void SessionPump::SetEnd(int code, const std::string& message,
                         bool not_started) {
  // The first one counts: an engine's client tells the end once more.
  if (end_) return;
  end_.emplace();
  end_->set_exit_code(code);
  end_->set_message(message);
  end_->set_not_started(not_started);
  drain_until_ = MonotonicNow() + kOutputTime;
}

void SessionPump::ReadOutput(Fd* from, bool error) {
  if (!call_->CanWrite()) return;
  std::string bytes(kMaxSessionData, '\0');
  const ssize_t n = read(from->get(), bytes.data(), bytes.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // A terminal without a process gives EIO.
  if (n <= 0) return from->Reset();
  bytes.resize(static_cast<size_t>(n));
  v1::SessionOutput output;
  *(error ? output.mutable_error_data() : output.mutable_data()) =
      std::move(bytes);
  call_->Write(std::move(output));
}

void SessionPump::SendWhatIsDue() {
  if (!call_->CanWrite() || end_sent_) return;
  v1::SessionOutput output;
  if (std::exchange(tells_start_, false)) {
    *output.mutable_started() = started_;
    return call_->Write(std::move(output));
  }
  const bool drained = !streams_.out && !streams_.err;
  if (!end_ || (!drained && MonotonicNow() < drain_until_)) return;
  *output.mutable_end() = *end_;
  end_sent_ = true;
  call_->Write(std::move(output));
}

bool Send(v1::SessionOutput message, SessionCall* call, Bell* bell) {
  for (;;) {
    bell->Clear();
    if (call->ended()) return false;
    if (call->CanWrite()) break;
    // The call's end rings, too.
    WaitFor(*bell, MonotonicNow() + kLastMessageTime);
  }
  call->Write(std::move(message));
  return true;
}

void SendLast(v1::SessionOutput last, SessionCall* call, Bell* bell) {
  if (!Send(std::move(last), call, bell)) return;
  call->FinishWrites();
  AwaitEnd(call, bell);
}

}  // namespace lockstep::worker::agent
