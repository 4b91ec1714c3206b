#include "worker/agent/host/host_setup.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace lockstep::worker::agent {

StatusOr<std::string> ShimPath(const std::string& flag) {
  std::string path = flag;
  if (path.empty()) {
    char self[PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", self, sizeof(self));
    if (size <= 0) return ErrnoStatus(errno, "finding this program");
    path.assign(self, static_cast<size_t>(size));
    const std::string dir = path.substr(0, path.rfind('/'));
    path = JoinPath(dir, "lockstep-shim");
    // An installed shim is not in PATH, because users never run it.
    const std::string installed =
        JoinPath(dir, "../libexec/lockstep/lockstep-shim");
    if (access(path.c_str(), X_OK) != 0 &&
        access(installed.c_str(), X_OK) == 0) {
      path = installed;
    }
  }
  if (path.front() != '/' || access(path.c_str(), X_OK) != 0) {
    return NotFound(
        "lockstep-shim is not at {}: give its absolute path with "
        "--shim",
        path);
  }
  return path;
}

StatusOr<TaskUser> FindUser(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  char buffer[16384];
  if (getpwnam_r(name.c_str(), &entry, buffer, sizeof(buffer), &found) != 0 ||
      found == nullptr) {
    return NotFound("--task-user: user {} does not exist", name);
  }
  if (entry.pw_uid == 0) {
    return InvalidArgument("--task-user {} is root: name another user", name);
  }
  if (geteuid() != 0 && geteuid() != entry.pw_uid) {
    return PermissionDenied("--task-user {} needs root", name);
  }
  TaskUser user{entry.pw_uid, entry.pw_gid, {}, entry.pw_dir};
  int count = 256;
  user.groups.resize(static_cast<size_t>(count));
  if (getgrouplist(name.c_str(), entry.pw_gid, user.groups.data(), &count) <
      0) {
    return InvalidArgument("--task-user {} is in more than 256 groups", name);
  }
  user.groups.resize(static_cast<size_t>(count));
  return user;
}

// Connecting a datagram socket chooses the address and sends nothing.
StatusOr<std::string> AddressTowards(const HostPort& target) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(
      target.host.c_str(), std::to_string(target.port).c_str(), &hints, &list);
  if (error != 0) {
    return Unavailable("--coordinator {}: {}", target.host,
                       gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list,
                                                             freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const Fd fd(socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    char text[NI_MAXHOST];
    if (fd && connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof(text),
                    nullptr, 0, NI_NUMERICHOST) == 0) {
      return std::string(text);
    }
  }
  return Unavailable("no route to {}: set this host's address with --address",
                     target.host);
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string NodeNameOf(const std::string& hostname) {
  std::string name =
      hostname.substr(0, std::min(hostname.find('.'), size_t{63}));
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    } else if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) {
      c = '-';
    }
  }
  return name;
}

}  // namespace lockstep::worker::agent
