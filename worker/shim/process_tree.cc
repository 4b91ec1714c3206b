#include "worker/shim/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/shim/io.h"

namespace lockstep::worker::shim {
namespace {

struct Stat {
  pid_t parent = 0;
  uint64_t start_time = 0;
};

// Fields 4 and 22 of proc(5); the command before them may hold anything.
bool ReadStat(pid_t pid, Stat* stat) {
  std::string text;
  if (!ReadFile("/proc/" + std::to_string(pid) + "/stat", &text)) return false;
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos || bracket + 4 > text.size()) return false;
  const char* at = text.c_str() + bracket + 3;
  for (int field = 4; field <= 22; ++field) {
    char* end = nullptr;
    const unsigned long long value = strtoull(at, &end, 10);
    if (end == at) return false;
    if (field == 4) stat->parent = static_cast<pid_t>(value);
    if (field == 22) stat->start_time = value;
    at = end;
  }
  return true;
}

// The numeric names in a directory of /proc.
std::vector<pid_t> Numbers(const std::string& path) {
  std::vector<pid_t> numbers;
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = readdir(dir)) {
    const int number = atoi(entry->d_name);
    if (number > 0) numbers.push_back(number);
  }
  closedir(dir);
  return numbers;
}

// False where the kernel does not keep lists of children.
bool ChildrenFromLists(pid_t pid, std::vector<pid_t>* children) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  bool known = false;
  for (const pid_t thread : Numbers(tasks)) {
    std::string text;
    if (!ReadFile(tasks + "/" + std::to_string(thread) + "/children", &text)) {
      continue;
    }
    known = true;
    const char* at = text.c_str();
    for (;;) {
      char* end = nullptr;
      const long child = strtol(at, &end, 10);
      if (end == at) break;
      children->push_back(static_cast<pid_t>(child));
      at = end;
    }
  }
  return known;
}

std::vector<pid_t> ChildrenFromAll(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t other : Numbers("/proc")) {
    Stat stat;
    if (ReadStat(other, &stat) && stat.parent == pid) {
      children.push_back(other);
    }
  }
  return children;
}

std::vector<pid_t> Children(pid_t pid, bool lists) {
  std::vector<pid_t> children;
  if (!lists) return ChildrenFromAll(pid);
  ChildrenFromLists(pid, &children);
  return children;
}

bool Contains(const std::vector<pid_t>& set, pid_t pid) {
  return std::find(set.begin(), set.end(), pid) != set.end();
}

// Holds `pid` before it looks who it is: from then on the number cannot change
// hands unseen. A zombie gets the signal too: its threads may still run.
// `start_time`, where it is not 0, must be the process's own.
bool SignalIfChildOf(pid_t pid, uint64_t start_time,
                     const std::vector<pid_t>& parents, int signo) {
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  Stat stat;
  if (!pidfd || !ReadStat(pid, &stat) || !Contains(parents, stat.parent) ||
      (start_time != 0 && stat.start_time != start_time)) {
    return false;
  }
  return syscall(SYS_pidfd_send_signal, pidfd.get(), signo, nullptr, 0) == 0;
}

}  // namespace

uint64_t StartTime(pid_t pid) {
  Stat stat;
  return ReadStat(pid, &stat) ? stat.start_time : 0;
}

bool SignalDescendant(pid_t pid, int signo) {
  return SignalIfChildOf(pid, 0, {getpid()}, signo);
}

int SignalTree(int signo, const std::vector<pid_t>& spared) {
  std::vector<pid_t> own_children;
  const bool lists = ChildrenFromLists(getpid(), &own_children);
  // Both grow while the tree is walked. It is short: that of one rank. The
  // whole tree comes first: a signal on the way would also reach what the
  // program starts in answer to it, such as the copy of its last files.
  std::vector<pid_t> tree{getpid()};
  std::vector<uint64_t> start_times{0};
  for (size_t i = 0; i < tree.size(); ++i) {
    for (const pid_t child : Children(tree[i], lists)) {
      Stat stat;
      if (Contains(spared, child) || Contains(tree, child) ||
          !ReadStat(child, &stat)) {
        continue;
      }
      // One whose parent has died meanwhile is ours.
      if (stat.parent != tree[i] && stat.parent != getpid()) continue;
      tree.push_back(child);
      start_times.push_back(stat.start_time);
    }
  }
  int signalled = 0;
  for (size_t i = 1; i < tree.size(); ++i) {
    if (SignalIfChildOf(tree[i], start_times[i], tree, signo)) ++signalled;
  }
  return signalled;
}

bool KillCgroup(const std::string& cgroup) {
  if (cgroup.empty()) return false;
  const Fd fd(open((cgroup + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  return fd && write(fd.get(), "1", 1) == 1;
}

}  // namespace lockstep::worker::shim
