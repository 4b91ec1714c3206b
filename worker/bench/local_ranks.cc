#include "worker/bench/local_ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
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

constexpr size_t kBytes = size_t{64} << 20;
constexpr auto kPollInterval = std::chrono::microseconds(200);

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

// An entry, then its key and its value. Fresh memory is zero: not written.
struct SharedRendezvousStore::Entry {
  std::atomic<uint32_t> written;
  uint32_t key_size;
  uint32_t value_size;
  char* key() { return reinterpret_cast<char*>(this + 1); }
  size_t size() const { return SizeFor(key_size, value_size); }
  static size_t SizeFor(size_t key, size_t value) {
    return (sizeof(Entry) + key + value + 7) & ~size_t{7};
  }
};

struct SharedRendezvousStore::Log {
  std::atomic<uint64_t> used;
  Entry* At(uint64_t offset) {
    return reinterpret_cast<Entry*>(reinterpret_cast<char*>(this + 1) + offset);
  }
};

StatusOr<std::unique_ptr<SharedRendezvousStore>>
SharedRendezvousStore::Create() {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, "mapping memory for the ranks' rendezvous");
  }
  return std::unique_ptr<SharedRendezvousStore>(
      new SharedRendezvousStore(new (memory) Log{}));
}

SharedRendezvousStore::~SharedRendezvousStore() { munmap(log_, kBytes); }

Status SharedRendezvousStore::Put(const std::string& key,
                                  std::string_view value) {
  const size_t size = Entry::SizeFor(key.size(), value.size());
  for (;;) {
    const uint64_t end = log_->used.load();
    if (end + size > kBytes - sizeof(Log)) {
      return ResourceExhausted("the ranks' rendezvous is full");
    }
    // The process that marks the end entry writes it; readers see it when the
    // end has moved on.
    Entry* const entry = log_->At(end);
    uint32_t free = 0;
    if (entry->written.compare_exchange_strong(free, 1)) {
      entry->key_size = static_cast<uint32_t>(key.size());
      entry->value_size = static_cast<uint32_t>(value.size());
      std::memcpy(entry->key(), key.data(), key.size());
      std::memcpy(entry->key() + key.size(), value.data(), value.size());
      log_->used.store(end + size);
      return OkStatus();
    }
    std::this_thread::yield();  // Another process writes.
  }
}

StatusOr<std::string> SharedRendezvousStore::Get(const std::string& key,
                                                 MonoTime deadline) {
  uint64_t seen = 0;
  for (;;) {
    const uint64_t used = log_->used.load();
    while (seen < used) {
      Entry* const entry = log_->At(seen);
      if (key == std::string_view(entry->key(), entry->key_size)) {
        return std::string(entry->key() + entry->key_size, entry->value_size);
      }
      seen += entry->size();
    }
    if (MonotonicNow() >= deadline)
      return DeadlineExceeded("no rank wrote key {} before the deadline", key);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace lockstep
