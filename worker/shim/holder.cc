#include "worker/shim/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "worker/shim/io.h"

namespace lockstep::worker::shim {
namespace {

constexpr std::string_view kHolderGroup = "/holder";

// One write is one order.
bool WriteOrder(const std::string& path, std::string_view order) {
  const Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), order.data(), order.size()) ==
                   static_cast<ssize_t>(order.size());
}

// The path behind "0::", without the holder's own part. "": no cgroup v2.
std::string BasePath(std::string_view self) {
  while (!self.empty()) {
    std::string_view line = self.substr(0, self.find('\n'));
    self.remove_prefix(std::min(line.size() + 1, self.size()));
    if (!line.starts_with("0::/")) continue;
    line.remove_prefix(3);
    if (line.ends_with(kHolderGroup)) line.remove_suffix(kHolderGroup.size());
    return std::string(line);
  }
  return "";
}

bool HasWord(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const std::string_view next = text.substr(0, text.find_first_of(" \n"));
    if (next == word) return true;
    text.remove_prefix(std::min(next.size() + 1, text.size()));
  }
  return false;
}

// As sd_notify(3). Does nothing where no service manager listens.
void TellManager(std::string_view text) {
  const char* const name = getenv("NOTIFY_SOCKET");
  const std::string_view path = name == nullptr ? "" : name;
  sockaddr_un address{};
  if (path.size() < 2 || path.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  // An abstract name begins with a zero and does not end with one.
  const bool abstract = path.front() == '@';
  if (abstract) address.sun_path[0] = '\0';
  const size_t size =
      offsetof(sockaddr_un, sun_path) + path.size() + (abstract ? 0 : 1);
  const Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, /*protocol=*/0));
  (void)!sendto(fd.get(), text.data(), text.size(), MSG_NOSIGNAL,
                reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(size));
}

}  // namespace

std::string DivideGroup(const std::string& self, const std::string& mount) {
  const std::string own = BasePath(self);
  if (own.empty()) return "this host has no cgroup v2";
  // The root cgroup belongs to all processes and must not be divided.
  if (own == "/")
    return "this process is in the root cgroup: run it as a systemd unit";
  const std::string base = mount + own;
  std::string offered;
  if (!ReadFile(base + "/cgroup.controllers", &offered)) {
    return ErrorText("reading " + base + "/cgroup.controllers", errno);
  }
  const std::string holder = base + std::string(kHolderGroup);
  if (mkdir(holder.c_str(), 0755) != 0 && errno != EEXIST) {
    return ErrorText("making " + holder, errno);
  }
  // 0: the process that writes.
  if (!WriteOrder(holder + "/cgroup.procs", "0")) {
    return ErrorText("entering " + holder, errno);
  }
  // The daemon reports a controller that is missing (CgroupTree::Open).
  std::string order;
  for (const char* controller : {"cpu", "memory", "pids"}) {
    if (!HasWord(offered, controller)) continue;
    order += (order.empty() ? "+" : " +") + std::string(controller);
  }
  const std::string control = base + "/cgroup.subtree_control";
  if (!order.empty() && !WriteOrder(control, order)) {
    return ErrorText("writing " + order + " into " + control, errno);
  }
  return "";
}

int RunHolder() {
  std::string self;
  const std::string failed =
      ReadFile("/proc/self/cgroup", &self)
          ? DivideGroup(self, "/sys/fs/cgroup")
          : ErrorText("reading /proc/self/cgroup", errno);
  if (!failed.empty()) {
    Complain("cannot set up the cgroup for ranks: " + failed);
    return 1;
  }
  TellManager("READY=1\nSTATUS=Holding the cgroups of ranks");
  for (;;) pause();
}

}  // namespace lockstep::worker::shim
