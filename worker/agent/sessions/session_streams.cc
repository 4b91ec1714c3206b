#include "worker/agent/sessions/session_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "common/os/process.h"

namespace lockstep::worker::agent {
namespace {

void SetNonBlocking(const Fd& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

Status MakeTerminal(const std::optional<TaskUser>& user,
                    SessionStreams* streams, std::vector<Fd>* theirs) {
  streams->out.Reset(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[64];
  if (!streams->out || grantpt(streams->out.get()) != 0 ||
      unlockpt(streams->out.get()) != 0 ||
      ptsname_r(streams->out.get(), name, sizeof(name)) != 0) {
    return ErrnoStatus(errno, "making a terminal");
  }
  for (int i = 0; i < 3; ++i) {
    Fd fd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!fd) return ErrnoStatus(errno, std::string("opening ") + name);
    theirs->push_back(std::move(fd));
  }
  // As login does, so that the command may open it by name.
  if (user && fchown((*theirs)[0].get(), user->uid, user->gid) == 0) {
    (void)fchmod((*theirs)[0].get(), 0600);
  }
  streams->in.Reset(fcntl(streams->out.get(), F_DUPFD_CLOEXEC, 0));
  if (!streams->in) return ErrnoStatus(errno, "making a terminal");
  streams->terminal = true;
  return OkStatus();
}

}  // namespace

StatusOr<SessionStreams> MakeSessionStreams(
    const std::optional<WindowSize>& terminal,
    const std::optional<TaskUser>& user, std::vector<Fd>* theirs) {
  SessionStreams streams;
  if (terminal) {
    LOCKSTEP_RETURN_IF_ERROR(MakeTerminal(user, &streams, theirs));
    SetWindowSize(streams, *terminal);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(Pipe in, MakePipe());
    LOCKSTEP_ASSIGN_OR_RETURN(Pipe out, MakePipe());
    LOCKSTEP_ASSIGN_OR_RETURN(Pipe err, MakePipe());
    theirs->push_back(std::move(in.read));
    theirs->push_back(std::move(out.write));
    theirs->push_back(std::move(err.write));
    streams.in = std::move(in.write);
    streams.out = std::move(out.read);
    streams.err = std::move(err.read);
    SetNonBlocking(streams.err);
  }
  SetNonBlocking(streams.in);
  SetNonBlocking(streams.out);
  int control[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0) {
    return ErrnoStatus(errno, "making a socket");
  }
  streams.control.Reset(control[0]);
  SetNonBlocking(streams.control);
  theirs->emplace_back(control[1]);
  return streams;
}

void SetWindowSize(const SessionStreams& streams, const WindowSize& size) {
  if (!streams.terminal) return;
  winsize window{};
  window.ws_row = static_cast<unsigned short>(size.rows);
  window.ws_col = static_cast<unsigned short>(size.columns);
  (void)ioctl(streams.out.get(), TIOCSWINSZ, &window);
}

}  // namespace lockstep::worker::agent
