#include "common/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/os/pidfd.h"
#include "common/os/procfs.h"

namespace lockstep {
namespace {

constexpr Duration kKillTime = std::chrono::seconds(5);

// Returns true if the process has ended.
StatusOr<bool> PollPidfd(int pidfd, MonoTime deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(deadline - MonotonicNow(), Duration::zero()));
    pollfd p{pidfd, POLLIN, 0};
    const int timeout = static_cast<int>(
        std::min<int64_t>(left.count(), int64_t{24} * 3600 * 1000));
    const int n = poll(&p, 1, timeout);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return ErrnoStatus(errno, "poll of a pidfd");
    if (MonotonicNow() >= deadline) return false;
  }
}

}  // namespace

StatusOr<std::string> BootId() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string id,
                            ReadProcFile("/proc/sys/kernel/random/boot_id"));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

StatusOr<uint64_t> StartTime(pid_t pid) {
  LOCKSTEP_ASSIGN_OR_RETURN(ProcessStat stat, ReadProcessStat(pid));
  return stat.start_time;
}

StatusOr<Process> OpenVerified(const ProcessId& id) {
  // First opens the process with that pid, then checks its identity. From then
  // on a reuse of the pid would be visible, because the pidfd would have ended.
  Fd pidfd(id.pid > 0 ? PidfdOpen(id.pid) : -1);
  if (!pidfd) return NotFound("process {} is gone", id.pid);
  const StatusOr<uint64_t> start = StartTime(id.pid);
  if (!start.ok() || *start != id.start_time) {
    return NotFound("process {} is gone, and its pid is reused", id.pid);
  }
  Process process{id, std::move(pidfd)};
  if (HasEnded(process)) return NotFound("process {} has ended", id.pid);
  return process;
}

Status SendSignal(const Process& process, int signo) {
  if (PidfdSendSignal(process.pidfd.get(), signo) == 0) {
    return OkStatus();
  }
  const int error = errno;
  if (error == ESRCH) return NotFound("process {} is gone", process.id.pid);
  return ErrnoStatus(error, fmt::format("sending signal {} to process {}",
                                        signo, process.id.pid));
}

std::string ProcessExit::Describe() const {
  if (!known) return "ended";
  if (signal == 0) return fmt::format("exited with code {}", code);
  const char* text = sigdescr_np(signal);
  return fmt::format("killed by signal {} ({})", signal,
                     text != nullptr ? text : "no name");
}

bool HasEnded(const Process& process) {
  pollfd p{process.pidfd.get(), POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

StatusOr<ProcessExit> WaitExit(const Process& process, MonoTime deadline) {
  LOCKSTEP_ASSIGN_OR_RETURN(const bool ended,
                            PollPidfd(process.pidfd.get(), deadline));
  if (!ended) {
    return DeadlineExceeded("process {} still runs", process.id.pid);
  }
  siginfo_t info{};
  int n;
  do {
    n = waitid(P_PIDFD, static_cast<id_t>(process.pidfd.get()), &info,
               WEXITED | WNOHANG);
  } while (n != 0 && errno == EINTR);
  ProcessExit status;
  if (n != 0 || info.si_pid == 0) return status;  // Not our child.
  status.known = true;
  if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  return status;
}

StatusOr<ProcessExit> StopProcess(const Process& process, Duration grace) {
  // If it has ended already, only wait.
  (void)SendSignal(process, SIGTERM);
  StatusOr<ProcessExit> status = WaitExit(process, MonotonicNow() + grace);
  if (status.ok()) return status;
  (void)SendSignal(process, SIGKILL);
  return WaitExit(process, MonotonicNow() + kKillTime);
}

StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "making a pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

StatusOr<Fd> MakeMemfd(const std::string& name, std::string_view bytes) {
  Fd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoStatus(errno, "making the memory file " + name);
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return ErrnoStatus(errno, "filling the memory file " + name);
    done += static_cast<size_t>(n);
  }
  if (lseek(fd.get(), 0, SEEK_SET) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS,
            F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing the memory file " + name);
  }
  return fd;
}

}  // namespace lockstep
