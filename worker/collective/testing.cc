#include "worker/collective/testing.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <thread>
#include <utility>

namespace lockstep::worker::collective {

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
      return DeadlineExceeded("no rank wrote key {} in time", key);
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
    if (MonotonicNow() >= deadline)
      return DeadlineExceeded("no rank wrote key {} in time", key);
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
    if (MonotonicNow() >= deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

CommunicatorOptions TestOptions(int rank, int size, RendezvousStore* store) {
  const char* const backend = std::getenv("LOCKSTEP_TEST_BACKEND");
  return TestOptionsOf(backend == nullptr ? "tcp" : backend, rank, size, store);
}

CommunicatorOptions TestOptionsOf(const std::string& backend, int rank,
                                  int size, RendezvousStore* store) {
  CommunicatorOptions options;
  options.backend = backend;
  if (backend == "hierarchical" && size > 1) {
    options.host = rank < (size + 1) / 2 ? "one host" : "another host";
  }
  constexpr std::string_view kWithHosts = "hierarchical_";
  if (backend.starts_with(kWithHosts)) {
    options.backend = "hierarchical";
    options.host = fmt::format("host {}", backend.at(kWithHosts.size() + rank));
  }
  options.rank = rank;
  options.size = size;
  options.label = "job test g1";
  options.forming_deadline = MonotonicNow() + std::chrono::seconds(20);
  options.rendezvous = store;
  return options;
}

Usage UsageNow() {
  Usage usage;
  usage.files = CountEntries("/proc/self/fd");
  usage.threads = CountEntries("/proc/self/task");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++usage.mappings;
  usage.resident_kib = static_cast<int64_t>(CountResidentPages()) *
                       (sysconf(_SC_PAGESIZE) / 1024);
  return usage;
}

Status CheckNoGrowth(const Usage& before) {
  Usage now = UsageNow();
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(5);
  while (now.threads != before.threads && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    now = UsageNow();
  }
  if (now.files == before.files && now.threads == before.threads &&
      (kSanitized || (now.mappings <= before.mappings + 24 &&
                      now.resident_kib <= before.resident_kib + 8 * 1024))) {
    return OkStatus();
  }
  return Internal(
      "{} files, {} threads, {} mappings and {} KiB have become {}, {}, {} and "
      "{}",
      before.files, before.threads, before.mappings, before.resident_kib,
      now.files, now.threads, now.mappings, now.resident_kib);
}

Duration WakeUpTime() {
  std::vector<Duration> times;
  for (int i = 0; i < 5; ++i) {
    Mutex mu;
    CondVar changed;
    bool told = false;
    MonoTime woken;
    std::thread sleeper([&] {
      MutexLock lock(&mu);
      while (!told) changed.Wait(&mu);
      woken = MonotonicNow();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const MonoTime start = MonotonicNow();
    {
      MutexLock lock(&mu);
      told = true;
      changed.NotifyAll();
    }
    sleeper.join();
    times.push_back(woken - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

bool AwaitTrue(const std::function<bool()>& condition) {
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  while (!condition()) {
    if (MonotonicNow() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int CountEntries(const char* dir) {
  int count = 0;
  DIR* const d = opendir(dir);
  while (d != nullptr && readdir(d) != nullptr) ++count;
  if (d != nullptr) closedir(d);
  return count;
}

size_t CountResidentPages() {
  size_t total = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident;
}

FormedRanks::FormedRanks(int n, const RankFormer& form) : communicators_(n) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  std::vector<Status> ends(n);
  SpawnRanks(n, [&](int rank) {
    auto formed = form(rank, &store);
    ends[rank] = formed.status();
    if (formed.ok()) communicators_[rank] = *std::move(formed);
  });
  for (const Status& end : ends) status_.Update(end);
}

RankBoard::RankBoard() {
  signal(SIGPIPE, SIG_IGN);
  char name[] = "/tmp/lockstep-ranks-XXXXXX";
  if (mkdtemp(name) != nullptr) dir_ = name;
  void* const memory = mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  // Tests only: without it nothing can be shown.
  if (dir_.empty() || memory == MAP_FAILED) abort();
  counters_ = new (memory) Counters{};
}

RankBoard::~RankBoard() {
  munmap(counters_, sizeof(Counters));
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

int RankBoard::RunUntilError(Communicator* communicator, int rank,
                             const Operation& operation) {
  std::atomic<bool> over{false};
  std::thread watchdog([&] {
    while (!over && !counters_->abort) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!over) communicator->Abort("told to");
  });
  Status status;
  while (status.ok()) {
    status = Run(communicator, operation, std::chrono::seconds(30));
    ++counters_->steps[rank];
  }
  counters_->ended[rank] = MonotonicNow().time_since_epoch().count();
  over = true;
  watchdog.join();
  return static_cast<int>(status.code());
}

bool RankBoard::AllMade(int n, int steps) const {
  return std::all_of(counters_->steps, counters_->steps + n,
                     [&](const auto& made) { return made >= steps; });
}

bool RankBoard::AwaitStill(int n) const {
  int seen = -1;
  return AwaitTrue([&] {
    int sum = 0;
    for (int rank = 0; rank < n; ++rank) sum += counters_->steps[rank];
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return std::exchange(seen, sum) == sum;
  });
}

Duration RankBoard::EndedAfter(int rank, MonoTime start) const {
  return MonoTime(Duration(counters_->ended[rank].load())) - start;
}

}  // namespace lockstep::worker::collective
