#include "worker/shim/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

namespace lockstep::worker::shim {
namespace {

// The kernel's limit (SCM_MAX_FD).
constexpr size_t kMostFds = 253;

int64_t Nanos(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * kNanosPerSecond + t.tv_nsec;
}

}  // namespace

int64_t WallNanos() { return Nanos(CLOCK_REALTIME); }
int64_t MonoNanos() { return Nanos(CLOCK_MONOTONIC); }
int64_t BootNanos() { return Nanos(CLOCK_BOOTTIME); }

std::string ErrorText(std::string_view doing, int error) {
  std::string text(doing);
  text.append(": ");
  const char* description = strerrordesc_np(error);
  text.append(description != nullptr ? description : "unknown error");
  return text;
}

void Complain(const std::string& text) {
  (void)!WriteFd(2, "lockstep-shim: " + text + "\n");
}

bool ReadFd(int fd, size_t limit, std::string* out) {
  out->clear();
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) return true;
    out->append(buffer, static_cast<size_t>(n));
    if (out->size() > limit) {
      errno = EFBIG;
      return false;
    }
  }
}

bool ReadFile(const std::string& path, std::string* out) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ReadFd(fd.get(), 1 << 20, out);
}

bool WriteFd(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool WriteRecord(const std::string& path, std::string_view bytes) {
  const std::string temporary = path + ".tmp";
  {
    const Fd fd(open(temporary.c_str(),
                     O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                     0640));
    if (!fd || !WriteFd(fd.get(), bytes) || fsync(fd.get()) != 0) {
      const int error = errno;
      unlink(temporary.c_str());
      errno = error;
      return false;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return false;
  const Fd dir(open(DirName(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return dir && fsync(dir.get()) == 0;
}

ssize_t ReceivePacket(int fd, char* buffer, size_t size, std::vector<Fd>* fds) {
  iovec part = {buffer, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = recvmsg(fd, &message, MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int received = -1;
      memcpy(&received, CMSG_DATA(part_of) + i * sizeof(int), sizeof(int));
      fds->emplace_back(received);
    }
  }
  return n;
}

bool MakeSealed(const char* name, std::string_view bytes, Fd* fd) {
  fd->Reset(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return *fd && WriteFd(fd->get(), bytes) &&
         lseek(fd->get(), 0, SEEK_SET) == 0 &&
         fcntl(fd->get(), F_ADD_SEALS,
               F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) {
    pointers.push_back(const_cast<char*>(s.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::string DirName(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

void DefaultSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signo = 1; signo < NSIG; ++signo) {
    sigaction(signo, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace lockstep::worker::shim
