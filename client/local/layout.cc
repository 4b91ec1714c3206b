#include "client/local/layout.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/hash.h"

namespace lockstep::cli {
std::string LocalLayout::DaemonDir(std::string_view daemon) const {
  return JoinPath(dir, daemon);
}
std::string LocalLayout::TlsDir(std::string_view daemon) const {
  return JoinPath(DaemonDir(daemon), "tls");
}
std::string LocalLayout::Log(std::string_view daemon) const {
  return JoinPath(DaemonDir(daemon), "log");
}
std::string LocalLayout::Endpoint(std::string_view daemon) const {
  return JoinPath(DaemonDir(daemon), "endpoint.json");
}

std::string WorkerName(int index) { return fmt::format("worker-{}", index); }

std::string RuntimeDir(std::string_view cluster_dir, uid_t uid) {
  return fmt::format("/tmp/lockstep-{}-{:08x}", uid,
                     static_cast<uint32_t>(Fnv1a(cluster_dir)));
}

StatusOr<std::string> AbsolutePath(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  char cwd[4096];
  if (!getcwd(cwd, sizeof(cwd))) return ErrnoStatus(errno, "getcwd");
  return JoinPath(cwd, path);
}

Status MakePrivateDir(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return OkStatus();
  if (errno != EEXIST) return ErrnoStatus(errno, "making " + path);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    return ErrnoStatus(errno, "looking at " + path);
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & 077) != 0) {
    return PermissionDenied(
        "{} exists and is not a private directory of this user; remove it, or "
        "give the cluster another directory",
        path);
  }
  return OkStatus();
}

}  // namespace lockstep::cli
