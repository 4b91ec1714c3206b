#include "common/model/node.h"

#include <fmt/format.h>

namespace lockstep {

std::string_view Name(NodeState state) {
  switch (state) {
    case NodeState::kReady:
      return "READY";
    case NodeState::kUnknown:
      return "UNKNOWN";
    case NodeState::kLost:
      return "LOST";
    case NodeState::kDraining:
      return "DRAINING";
    case NodeState::kDrained:
      return "DRAINED";
    case NodeState::kQuarantined:
      return "QUARANTINED";
  }
  return "UNKNOWN";
}

std::string_view Name(Goal goal) {
  switch (goal) {
    case Goal::kPrepare:
      return "PREPARE";
    case Goal::kLaunch:
      return "LAUNCH";
    case Goal::kGo:
      return "GO";
    case Goal::kStop:
      return "STOP";
    case Goal::kForget:
      return "FORGET";
  }
  return "UNKNOWN";
}

std::string_view Name(GangPhase phase) {
  switch (phase) {
    case GangPhase::kPreparing:
      return "PREPARING";
    case GangPhase::kPrepared:
      return "PREPARED";
    case GangPhase::kRefused:
      return "REFUSED";
    case GangPhase::kLaunched:
      return "LAUNCHED";
    case GangPhase::kStopping:
      return "STOPPING";
    case GangPhase::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

std::string_view Name(GpuState state) {
  switch (state) {
    case GpuState::kOk:
      return "OK";
    case GpuState::kReclaim:
      return "RECLAIM";
    case GpuState::kWithheld:
      return "WITHHELD";
    case GpuState::kSilent:
      return "SILENT";
    case GpuState::kChecking:
      return "CHECKING";
  }
  return "UNKNOWN";
}

std::string Describe(const HeldProcess& process) {
  std::string about;
  const auto add = [&](const std::string& words) {
    about += (about.empty() ? "" : ", ") + words;
  };
  if (!process.command.empty()) add(process.command);
  if (!process.user.empty()) add("user " + process.user);
  if (!process.state.empty()) {
    add("state " + process.state +
        (process.wait_channel.empty() ? "" : " in " + process.wait_channel));
  }
  if (!process.job.empty()) add("job " + process.job);
  if (process.gpu_memory_bytes) {
    add(FormatBytes(*process.gpu_memory_bytes) + " of its memory");
  }
  if (about.empty()) about = "not visible in /proc";
  return fmt::format("process {} ({})", process.pid, about);
}

std::string Describe(const GpuReclaim& reclaim) {
  if (reclaim.processes.empty()) {
    return fmt::format("reclaim: {} of its memory is used, {} without ranks",
                       FormatBytes(reclaim.memory_used_bytes),
                       FormatBytes(reclaim.baseline_bytes));
  }
  const size_t others = reclaim.processes.size() - 1;
  return fmt::format("reclaim: {}{} still {} it",
                     Describe(reclaim.processes.front()),
                     others == 0 ? "" : fmt::format(" and {} more", others),
                     others == 0 ? "uses" : "use");
}

}  // namespace lockstep
