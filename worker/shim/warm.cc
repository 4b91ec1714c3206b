#include "worker/shim/warm.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "worker/shim/launch.h"
#include "worker/shim/shim.h"
#include "worker/task/bytes.h"

namespace lockstep::worker::shim {
namespace {

// What an interpreter says of itself.
constexpr size_t kMostWords = 16 << 10;

int Refuse(const std::string& text) {
  Complain(text);
  return 1;
}

// The daemon's packet: at least the spec and the file for errors.
bool TakeRank(std::vector<Fd>* fds, task::ShimSpec* spec) {
  std::string bytes;
  std::string error;
  if (fds->size() < 2 ||
      !ReadFd((*fds)[0].get(), task::kMaxRecordBytes, &bytes) ||
      !task::DecodeShimSpec(bytes, spec, &error)) {
    return false;
  }
  dup2((*fds)[1].get(), 2);
  fds->erase(fds->begin(), fds->begin() + 2);
  return true;
}

// Takes the daemon's packet. Returns false if it has ended, or the rank's spec
// is damaged.
bool ReceiveRank(const Fd& daemon, task::ShimSpec* spec,
                 std::vector<Fd>* held) {
  char byte = 0;
  return ReceivePacket(daemon.get(), &byte, 1, held) > 0 &&
         TakeRank(held, spec);
}

// Waits until the daemon names a rank. Returns false if it or the interpreter
// has ended.
bool AwaitRank(const Fd& daemon, const Fd& interpreter) {
  static char buffer[kMostWords];
  for (;;) {
    pollfd fds[] = {{daemon.get(), POLLIN, 0}, {interpreter.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (fds[0].revents != 0) return true;
    const ssize_t n = recv(interpreter.get(), buffer, sizeof(buffer), 0);
    if (n <= 0) return false;
    const auto size = static_cast<size_t>(n);
    if (send(daemon.get(), buffer, size, MSG_NOSIGNAL | MSG_DONTWAIT) != n) {
      return false;
    }
  }
}

}  // namespace

int RunWarm(const task::ShimSpec& spec, Fd daemon) {
  Launch launch;
  std::string error;
  int error_number = 0;
  if (!BecomeShim()) return Refuse(ErrorText("becoming a shim", errno));
  if (!ForkWarm(spec, &launch, &error, &error_number)) return Refuse(error);
  task::ShimSpec rank;
  // Ports and the lock of the rank, open for as long as this process lives.
  std::vector<Fd> held;
  if (!AwaitRank(daemon, launch.warm)) {
    // The rank may be on its way: it starts cold. A daemon that sends later
    // gets an error.
    shutdown(daemon.get(), SHUT_RD);
    launch = Launch();
  }
  if (!ReceiveRank(daemon, &rank, &held)) return 1;
  daemon.Reset();
  return Shim(std::move(rank), std::move(launch)).Run();
}

}  // namespace lockstep::worker::shim
