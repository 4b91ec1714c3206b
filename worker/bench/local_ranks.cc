#include "worker/bench/local_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace lockstep::worker::bench {
namespace {

constexpr int kExitFailed = 1;

[[noreturn]] void RankMain(int rank, pid_t parent,
                           const std::function<int(int rank)>& fn) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  const int code = fn(rank);
  std::fflush(nullptr);
  _exit(code);
}

int CodeOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

constexpr auto kPollInterval = std::chrono::microseconds(200);

}  // namespace

int RunRanks(int ranks, double grace, const std::function<int(int rank)>& fn) {
  std::fflush(nullptr);
  std::vector<pid_t> pids;
  int code = 0;
  const pid_t self = getpid();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) RankMain(rank, self, fn);
    if (pid < 0) {
      fmt::print(stderr, "lockstep-bench: cannot start rank {}: {}\n", rank,
                 std::strerror(errno));
      code = kExitFailed;
      break;
    }
    pids.push_back(pid);
  }
  // Once `code` is not 0: when the others are killed.
  MonoTime limit = MonotonicNow();
  while (!pids.empty()) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (std::erase(pids, ended) > 0) {
      if (code != 0 || CodeOf(status) == 0) continue;
      code = CodeOf(status);
      limit = MonotonicNow() + Seconds(grace);
    }
    if (code != 0 && MonotonicNow() >= limit) {
      for (const pid_t pid : pids) kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return code;
}

void PinToCore(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = index % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

StatusOr<std::unique_ptr<SharedRendezvousStore>>
SharedRendezvousStore::Create() {
  Fd file(memfd_create("lockstep-bench", MFD_CLOEXEC));
  // What is appended by one write stays together, whoever else appends.
  if (!file || fcntl(file.get(), F_SETFL, O_APPEND) != 0) {
    return ErrnoStatus(errno, "making a file for the ranks' rendezvous");
  }
  return std::unique_ptr<SharedRendezvousStore>(
      new SharedRendezvousStore(std::move(file)));
}

Status SharedRendezvousStore::Put(const std::string& key,
                                  std::string_view value) {
  std::string entry;
  for (const std::string_view part : {std::string_view(key), value}) {
    const uint64_t size = part.size();
    entry.append(reinterpret_cast<const char*>(&size), sizeof(size));
    entry.append(part);
  }
  if (write(file_.get(), entry.data(), entry.size()) !=
      static_cast<ssize_t>(entry.size())) {
    return ErrnoStatus(errno, "writing to the ranks' rendezvous");
  }
  return OkStatus();
}

StatusOr<std::string> SharedRendezvousStore::Get(const std::string& key,
                                                 MonoTime deadline) {
  off_t at = 0;
  // False where that much has not been written yet.
  const auto read_part = [&](std::string* part) {
    uint64_t size = 0;
    if (pread(file_.get(), &size, sizeof(size), at) != sizeof(size)) {
      return false;
    }
    part->resize(size);
    at += sizeof(size) + size;
    return pread(file_.get(), part->data(), size, at - size) ==
           static_cast<ssize_t>(size);
  };
  for (off_t entry = 0;;) {
    std::string found;
    std::string value;
    if (read_part(&found) && read_part(&value)) {
      if (found == key) return value;
      entry = at;
      continue;
    }
    at = entry;
    if (MonotonicNow() >= deadline) {
      return DeadlineExceeded("no rank wrote key {} before the deadline", key);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace lockstep::worker::bench
