#include "worker/agent/host/orphans.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <set>

#include "common/os/marked_processes.h"

namespace lockstep::worker::agent {
namespace {

// A rank with more is not counted to its end.
constexpr size_t kMostProcesses = 4096;
// An execve takes milliseconds.
constexpr Duration kExecTime = std::chrono::seconds(1);

bool IsSubreaper() {
  int is = 0;
  return prctl(PR_GET_CHILD_SUBREAPER, &is) == 0 && is != 0;
}

std::string ProgramOf(const std::string& pid) {
  char target[PATH_MAX];
  const ssize_t size =
      readlink(("/proc/" + pid + "/exe").c_str(), target, sizeof(target));
  return size > 0 ? std::string(target, static_cast<size_t>(size)) : "";
}

// A fork of this process has its program and environment until exec.
bool IsAboutToExec(pid_t pid) {
  const std::string program = ProgramOf(std::to_string(pid));
  return !program.empty() && program == ProgramOf("self");
}

// Returns whether the process lacks kToolVariable. Reads the environment again
// after the program: the caller may have read this process's own environment in
// a fork that has become a tool since.
bool IsNoTool(pid_t pid) {
  const auto environ = EnvironOf(pid, MonotonicNow() + kExecTime);
  return environ && VariableIn(*environ, kToolVariable).empty();
}

// The engine ends its containers, and these with them.
bool IsOfAnEngine(const std::string& command) {
  return command == "conmon" || command == "podman";
}

bool TakeNumber(std::string_view* text, uint64_t* number) {
  const char* const end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(at - text->data()));
  return true;
}

}  // namespace

Status BecomeSubreaper() {
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
    return FailedPrecondition(
        "the process has children that it did not start, so it cannot tell "
        "their orphans from those of ranks");
  }
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return ErrnoStatus(errno, "becoming the subreaper of ranks");
  }
  return OkStatus();
}

bool IsOrphan(const ProcessStat& process, const std::string& environ,
              uint64_t since) {
  return process.parent == getpid() && process.start_time >= since &&
         VariableIn(environ, kToolVariable).empty() &&
         !IsOfAnEngine(process.command) && IsSubreaper() &&
         !IsAboutToExec(process.pid) && IsNoTool(process.pid);
}

std::vector<ProcessId> DescendantsOf(pid_t shim,
                                     const std::vector<ProcessStat>& all) {
  std::map<pid_t, uint64_t> start_times;
  for (const ProcessStat& process : all) {
    start_times[process.pid] = process.start_time;
  }
  std::vector<ProcessId> processes;
  for (const pid_t pid : TreeOf(shim, all)) {
    if (pid == shim) continue;
    if (processes.size() == kMostProcesses) break;
    processes.push_back({pid, start_times[pid]});
  }
  return processes;
}

std::string EncodeProcesses(const std::vector<ProcessId>& processes) {
  std::string text;
  for (const ProcessId& process : processes) {
    text += fmt::format("{} {}\n", process.pid, process.start_time);
  }
  return text;
}

std::vector<ProcessId> DecodeProcesses(std::string_view text) {
  std::vector<ProcessId> processes;
  while (!text.empty() && processes.size() < kMostProcesses) {
    const size_t end = text.find('\n');
    if (end == text.npos) break;  // Cut off.
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    uint64_t pid = 0;
    uint64_t start_time = 0;
    if (!TakeNumber(&line, &pid) || !line.starts_with(' ')) continue;
    line.remove_prefix(1);
    if (!TakeNumber(&line, &start_time) || !line.empty()) continue;
    if (pid < 2 || pid > INT_MAX) continue;
    processes.push_back({static_cast<pid_t>(pid), start_time});
  }
  return processes;
}

void NoteProcesses(FileSystem* files, const std::string& path,
                   const std::vector<ProcessId>& processes,
                   std::string* known) {
  std::string text = EncodeProcesses(processes);
  if (text == *known) return;
  auto file = files->Create(path, 0600);
  if (!file.ok() || !(*file)->Append(text).ok()) return;
  *known = std::move(text);
}

void OrphanReaper::Look(MonoTime now) {
  siginfo_t info{};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    seen_.clear();
    return;
  }
  std::set<std::pair<pid_t, uint64_t>> zombies;
  for (const ProcessStat& process : ReadAllProcesses()) {
    if (process.parent != getpid() || process.state != 'Z') continue;
    const std::pair key(process.pid, process.start_time);
    zombies.insert(key);
    const auto [known, is_new] = seen_.try_emplace(key, now);
    if (is_new || now - known->second < kPatience) continue;
    (void)waitid(P_PID, static_cast<id_t>(process.pid), &info,
                 WEXITED | WNOHANG);
  }
  std::erase_if(
      seen_, [&](const auto& entry) { return !zombies.contains(entry.first); });
}

}  // namespace lockstep::worker::agent
