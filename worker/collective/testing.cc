#include "worker/collective/testing.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace lockstep {

MonoTime Now() { return SystemClock().Now().mono; }

Status MapRendezvousStore::Put(const std::string& key, std::string_view value) {
  MutexLock lock(&mu_);
  if (!values_.emplace(key, value).second) {
    return AlreadyExists("key {} was written before", key);
  }
  changed_.NotifyAll();
  return OkStatus();
}

StatusOr<std::string> MapRendezvousStore::Get(const std::string& key,
                                              MonoTime deadline) {
  MutexLock lock(&mu_);
  for (;;) {
    const auto it = values_.find(key);
    if (it != values_.end()) return it->second;
    if (!changed_.WaitUntil(&mu_, deadline)) {
      return DeadlineExceeded("nobody wrote key {}", key);
    }
  }
}

std::string DirectoryRendezvousStore::PathOf(const std::string& key) const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '/', '_');
  return dir_ + "/" + name;
}

Status DirectoryRendezvousStore::Put(const std::string& key,
                                     std::string_view value) {
  const std::string path = PathOf(key);
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::ofstream(temporary, std::ios::binary) << value;
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "writing " + path);
  }
  return OkStatus();
}

StatusOr<std::string> DirectoryRendezvousStore::Get(const std::string& key,
                                                    MonoTime deadline) {
  for (;;) {
    std::ifstream file(PathOf(key), std::ios::binary);
    if (file) {
      std::stringstream value;
      value << file.rdbuf();
      return value.str();
    }
    if (Now() >= deadline) return DeadlineExceeded("nobody wrote key {}", key);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void SpawnRanks(int n, const std::function<void(int rank)>& fn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(fn, rank);
  for (auto& thread : threads) thread.join();
}

RankProcesses::RankProcesses(int n, const std::function<int(int rank)>& fn) {
  fflush(nullptr);
  for (int rank = 0; rank < n; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) _exit(fn(rank));
    pids_.push_back(pid);
  }
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void RankProcesses::Signal(int rank, int signal) {
  if (pids_[rank] > 0) kill(pids_[rank], signal);
}

int RankProcesses::Join(int rank, MonoTime deadline) {
  for (;;) {
    int status = 0;
    if (waitpid(pids_[rank], &status, WNOHANG) == pids_[rank]) {
      pids_[rank] = 0;
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (Now() >= deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

CommunicatorOptions TestOptions(int rank, int size, RendezvousStore* store) {
  CommunicatorOptions options;
  options.backend = "gloo";
  options.rank = rank;
  options.size = size;
  options.label = "job test g1";
  options.forming_deadline = Now() + std::chrono::seconds(20);
  options.rendezvous = store;
  return options;
}

}  // namespace lockstep
