#include "client/local/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include <thread>

namespace lockstep::cli {

StatusOr<Fd> LockFile(const std::string& path, Duration timeout) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  const SystemClock clock;
  const MonoTime deadline = clock.Now().mono + timeout;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return ErrnoStatus(errno, "locking " + path);
    }
    if (clock.Now().mono >= deadline) {
      return Unavailable(
          "another command is starting or stopping this cluster ({} is locked)",
          path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return fd;
}

}  // namespace lockstep::cli
