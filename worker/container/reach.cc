#include "worker/container/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/fd.h"
#include "common/base/mutex.h"
#include "common/os/as_user.h"

namespace lockstep::worker::container {
namespace {

// Result of a thread whose caller may have stopped waiting.
struct Answer {
  Mutex mu;
  CondVar changed;
  std::optional<StatusOr<ReachedDirectory>> reached ABSL_GUARDED_BY(mu);
};

}  // namespace

StatusOr<ReachedDirectory> ReachAs(const ContainerUser& user,
                                   const std::string& path) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  Fd directory;
  int error = EPERM;
  if (geteuid() != 0 && geteuid() == user.uid) {
    directory.Reset(open(path.c_str(), kFlags));
    error = errno;
  } else if (const AsUser as(user.uid, user.gid, user.groups); as.ok()) {
    directory.Reset(open(path.c_str(), kFlags));
    error = errno;
  }
  if (!directory) {
    if (error == EACCES || error == EPERM) {
      return PermissionDenied("user {1} cannot reach {0}", path, user.uid);
    }
    return ErrnoStatus(error, path);
  }
  struct stat info {};
  if (fstat(directory.get(), &info) != 0) return ErrnoStatus(errno, path);
  char name[PATH_MAX];
  const std::string link = fmt::format("/proc/self/fd/{}", directory.get());
  const ssize_t size = readlink(link.c_str(), name, sizeof(name));
  if (size <= 0) return ErrnoStatus(errno, link);
  return ReachedDirectory{std::string(name, static_cast<size_t>(size)),
                          info.st_dev, info.st_ino};
}

StatusOr<ReachedDirectory> ReachWithin(const ContainerUser& user,
                                       const std::string& path,
                                       Duration limit) {
  const MonoTime until = MonotonicNow() + limit;
  const auto answer = std::make_shared<Answer>();
  try {
    std::thread([answer, user, path] {
      auto reached = ReachAs(user, path);
      MutexLock lock(&answer->mu);
      answer->reached = std::move(reached);
      answer->changed.NotifyAll();
    }).detach();
  } catch (const std::system_error& e) {
    return Unavailable("{}: cannot start a thread: {}", path, e.what());
  }
  MutexLock lock(&answer->mu);
  while (!answer->reached && MonotonicNow() < until) {
    (void)answer->changed.WaitUntil(&answer->mu, until);
  }
  if (!answer->reached) {
    return DeadlineExceeded("the file system of {} does not answer", path);
  }
  return *answer->reached;
}

}  // namespace lockstep::worker::container
