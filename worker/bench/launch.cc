#include "worker/bench/launch.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace lockstep {
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

}  // namespace

int RunRanks(int ranks, double grace, const std::function<int(int rank)>& fn) {
  using Clock = std::chrono::steady_clock;
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
  size_t left = pids.size();
  Clock::time_point limit = Clock::now();
  bool killed = false;
  const auto fail = [&](int with) {
    if (code == 0) code = with;
    limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(grace));
  };
  while (left > 0) {
    for (pid_t& pid : pids) {
      int status = 0;
      if (pid == 0 || waitpid(pid, &status, WNOHANG) != pid) continue;
      pid = 0;
      --left;
      if (CodeOf(status) != 0 && code == 0) fail(CodeOf(status));
    }
    if (left == 0) break;
    if (code != 0 && !killed && Clock::now() >= limit) {
      for (const pid_t pid : pids) {
        if (pid > 0) kill(pid, SIGKILL);
      }
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return code;
}

void PinToCore(int index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int count = CPU_COUNT(&allowed);
  if (count == 0) return;
  int skip = index % count;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

}  // namespace lockstep
