#include "worker/agent/host/dead_sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <string_view>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kSuffix = ".sock";
constexpr size_t kDigits = 16;

bool IsOfAShim(std::string_view name) {
  return name.size() == kDigits + kSuffix.size() && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789abcdef") == kDigits;
}

}  // namespace

bool RemoveDeadSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  struct stat info {};
  if (path.empty() || path.size() >= sizeof(address.sun_path) ||
      lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return false;
  }
  memcpy(address.sun_path, path.data(), path.size());
  const Fd fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0 ||
      errno != ECONNREFUSED) {
    return false;
  }
  return unlink(path.c_str()) == 0;
}

int RemoveDeadSockets(const std::string& directory, WallTime now) {
  const auto names = RealFileSystem()->List(directory);
  if (!names.ok()) return 0;
  int removed = 0;
  for (const std::string& name : *names) {
    if (!IsOfAShim(name)) continue;
    const std::string path = JoinPath(directory, name);
    const auto info = RealFileSystem()->Stat(path);
    if (!info.ok() ||
        now - FromUnixNanos(info->mtime_unix_nanos) < kYoungSocket) {
      continue;
    }
    if (RemoveDeadSocket(path)) ++removed;
  }
  return removed;
}

}  // namespace lockstep::worker::agent
