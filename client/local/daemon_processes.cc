#include "client/local/daemon_processes.h"

#include <signal.h>

#include <utility>

#include "client/local/daemon.h"
#include "client/local/leftovers.h"
#include "client/local/lock.h"
#include "common/base/file.h"

namespace lockstep::cli {

Status DaemonProcesses::Read() {
  state_.clear();
  const auto text = RealFileSystem()->Read(layout_.StateFile());
  if (text.status().code() == StatusCode::kNotFound) return OkStatus();
  if (!text.ok()) return text.status();
  auto state = DecodeState(*text);
  if (!state.ok()) return Annotate(state.status(), layout_.StateFile());
  state_ = *std::move(state);
  return OkStatus();
}

Status DaemonProcesses::Write() const {
  return RealFileSystem()->WriteAtomic(layout_.StateFile(),
                                       EncodeState(state_));
}

Status DaemonProcesses::Add(const std::string& daemon, Process process) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string boot_id, BootId());
  state_[daemon] = {process.id, boot_id};
  children_[daemon] = std::move(process);
  return Write();
}

Status DaemonProcesses::Clear() {
  state_.clear();
  return Write();
}

StatusOr<Process> DaemonProcesses::Open(const std::string& daemon) const {
  const auto it = state_.find(daemon);
  if (it == state_.end()) return NotFound("{} was not started", daemon);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string boot_id, BootId());
  if (it->second.boot_id != boot_id) {
    return NotFound("{} was started before the machine was", daemon);
  }
  return OpenVerified(it->second.process);
}

pid_t DaemonProcesses::Pid(const std::string& daemon) const {
  const auto process = Open(daemon);
  return process.ok() ? process->id.pid : 0;
}

StatusOr<ProcessExit> DaemonProcesses::WaitEnded(const std::string& daemon,
                                                 Duration timeout) {
  const MonoTime deadline = MonotonicNow() + timeout;
  // The handle of a child also reaps it.
  const auto child = children_.find(daemon);
  if (child != children_.end()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const ProcessExit exit,
                              WaitExit(child->second, deadline));
    children_.erase(child);
    return exit;
  }
  const auto process = Open(daemon);
  if (!process.ok()) return ProcessExit{};
  return WaitExit(*process, deadline);
}

StatusOr<int> DaemonProcesses::Stop(const std::vector<std::string>& daemons,
                                    Duration grace) {
  const SystemClock clock;
  std::vector<Process> running;
  for (const std::string& daemon : daemons) {
    auto recorded = Open(daemon);
    if (recorded.ok()) {
      running.push_back(*std::move(recorded));
      continue;
    }
    for (Process& stray :
         FindDaemons(DaemonProgram(daemon), layout_.DaemonDir(daemon))) {
      running.push_back(std::move(stray));
    }
  }
  for (const Process& process : running) {
    // A process stopped by SIGSTOP would not see it otherwise.
    SendSignal(process, SIGTERM).IgnoreError();
    SendSignal(process, SIGCONT).IgnoreError();
  }
  const MonoTime deadline = clock.Now().mono + grace;
  for (const Process& process : running) {
    if (!WaitExit(process, deadline).ok()) {
      SendSignal(process, SIGKILL).IgnoreError();
      LOCKSTEP_RETURN_IF_ERROR(
          WaitExit(process, clock.Now().mono + kKillTimeout).status());
    }
  }
  // Reap children that ended before.
  for (const auto& [daemon, process] : children_) {
    WaitExit(process, clock.Now().mono).IgnoreError();
  }
  children_.clear();
  return static_cast<int>(running.size());
}

}  // namespace lockstep::cli
