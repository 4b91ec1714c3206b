#include "common/os/marked_processes.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// How long KillWanted waits in total for processes inside execve.
constexpr Duration kExecTime = std::chrono::seconds(1);

}  // namespace

bool IsInExec(std::string_view proc_pid_stat) {
  // proc(5): field 3 follows the command, which may hold any character.
  const size_t close = proc_pid_stat.rfind(')');
  if (close == std::string_view::npos) return false;
  std::string_view rest = proc_pid_stat.substr(close + 1);
  std::string_view size, code_end;
  for (int field = 3; field <= 27; ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n"));
    if (word.empty()) return false;
    rest.remove_prefix(word.size());
    if (field == 23) size = word;
    if (field == 27) code_end = word;
  }
  return size != "0" && code_end == "0";
}

std::string_view VariableIn(std::string_view environ, std::string_view name) {
  while (!environ.empty()) {
    const std::string_view entry = environ.substr(0, environ.find('\0'));
    environ.remove_prefix(std::min(entry.size() + 1, environ.size()));
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

std::optional<std::string> EnvironOf(pid_t pid, MonoTime deadline) {
  for (;;) {
    // The stat is read first. Otherwise an execve that ends between the two
    // reads would give an empty environment and a stat that says it is
    // complete.
    const auto stat = ReadProcFile(fmt::format("/proc/{}/stat", pid));
    auto environ = ReadProcFile(fmt::format("/proc/{}/environ", pid));
    if (!stat.ok() || !environ.ok()) return std::nullopt;
    if (!environ->empty()) return *std::move(environ);
    if (!IsInExec(*stat)) return std::string();
    if (MonotonicNow() >= deadline) return std::nullopt;
    poll(nullptr, 0, 1);
  }
}

std::vector<Process> KillWanted(
    const std::vector<ProcessStat>& all,
    const std::function<bool(const ProcessStat&, const std::string&)>& wanted) {
  std::vector<Process> reached;
  const MonoTime deadline = MonotonicNow() + kExecTime;
  for (const ProcessStat& process : all) {
    if (process.state == 'Z' || process.pid == getpid()) continue;
    auto held = OpenVerified({process.pid, process.start_time});
    if (!held.ok()) continue;
    if (wanted(process,
               EnvironOf(process.pid, deadline).value_or(std::string())) &&
        SendSignal(*held, SIGKILL).ok()) {
      reached.push_back(*std::move(held));
    }
  }
  return reached;
}

bool WaitUntilGone(const std::vector<Process>& processes, MonoTime deadline) {
  for (const Process& process : processes) {
    while (!HasEnded(process)) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - MonotonicNow());
      if (left.count() <= 0) return false;
      pollfd fd{process.pidfd.get(), POLLIN, 0};
      poll(&fd, 1, static_cast<int>(std::min<int64_t>(left.count(), 60000)));
    }
  }
  return true;
}

bool KillMarked(const std::string& name, const std::string& value,
                MonoTime deadline) {
  for (;;) {
    const std::vector<Process> reached =
        KillWanted(ReadAllProcesses(),
                   [&](const ProcessStat&, const std::string& environ) {
                     return VariableIn(environ, name) == value;
                   });
    if (reached.empty()) return true;
    if (!WaitUntilGone(reached, deadline)) return false;
    if (MonotonicNow() >= deadline) return false;
  }
}

}  // namespace lockstep
