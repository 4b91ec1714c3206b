#include "server/core/node_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/job.h"

namespace lockstep::server {
namespace {

bool IsSilent(const GpuUsage& gpu) {
  return !gpu.utilization && !gpu.memory_access && !gpu.memory_used_bytes &&
         !gpu.power_watts && !gpu.temperature_celsius;
}

bool Contains(const std::vector<Gpu>& gpus, const Gpu& gpu) {
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](const Gpu& each) { return IsSameGpu(each, gpu); });
}

// Clears the faults of these GPUs, or of all, and adds a word about each.
void ClearFaults(const std::vector<int32_t>& gpus, WallTime now,
                 NodeRecord* node, std::vector<std::string>* what) {
  for (Gpu& gpu : node->info.gpus) {
    const bool wanted = gpus.empty() || std::find(gpus.begin(), gpus.end(),
                                                  gpu.index) != gpus.end();
    if (gpu.fault.empty() || !wanted) continue;
    what->push_back(GpuLabel(gpu) + " cleared");
    gpu.fault.clear();
    gpu.fault_end.reset();
    gpu.lift_end = now + kLiftLasts;
  }
}

}  // namespace

std::string ClockText(WallTime time) {
  return FormatWallTime(time).substr(11, 8) + " UTC";
}

bool IsSameGpu(const Gpu& a, const Gpu& b) {
  return a.uuid.empty() || b.uuid.empty() ? a.index == b.index
                                          : a.uuid == b.uuid;
}

std::string GpuLabel(const Gpu& gpu) {
  std::string text = fmt::format("GPU {}", gpu.index);
  const std::string& model = gpu.model;
  if (model.empty() && gpu.uuid.empty()) return text;
  return fmt::format("{} ({}{}{})", text, model,
                     model.empty() || gpu.uuid.empty() ? "" : ", ", gpu.uuid);
}

void CompareGpus(const std::vector<Gpu>& before, NodeRecord* node,
                 WallTime now) {
  const std::vector<Gpu>& offered = node->info.gpus;
  std::vector<Gpu>& missing = node->missing_gpus;
  std::vector<Gpu> still;
  for (Gpu& gpu : missing) {
    if (!Contains(offered, gpu)) {
      still.push_back(std::move(gpu));
      continue;
    }
    AddEvent(node, Reason::kNodeGpuBack, GpuLabel(gpu) + " is offered again",
             now);
  }
  missing = std::move(still);
  for (const Gpu& gpu : before) {
    if (Contains(offered, gpu) || Contains(missing, gpu)) continue;
    if (missing.size() == kMaxMissingGpus) break;
    missing.push_back(gpu);
    AddEvent(node, Reason::kNodeGpuLost,
             fmt::format("{} is no longer offered: the node has {} of its "
                         "{} GPUs",
                         GpuLabel(gpu), offered.size(),
                         offered.size() + missing.size()),
             now);
  }
}

void KeepFaults(const std::vector<Gpu>& before, bool booted,
                std::vector<Gpu>* gpus) {
  for (Gpu& gpu : *gpus) {
    gpu.fault.clear();
    gpu.fault_end.reset();
    gpu.lift_end.reset();
    for (const Gpu& old : before) {
      if (!IsSameGpu(old, gpu)) continue;
      gpu.lift_end = old.lift_end;
      if (booted) continue;
      gpu.fault = old.fault;
      gpu.fault_end = old.fault_end;
    }
  }
}

std::string Describe(const Drain& drain) {
  std::string text = "drained by " + drain.requester;
  if (!drain.reason.empty()) text += ": " + drain.reason;
  return text;
}

void AddEvent(NodeRecord* node, Reason reason, std::string message,
              WallTime now) {
  Event event;
  event.time = now;
  event.reason = reason;
  event.message = Shorten(std::move(message));
  node->events.push_back(std::move(event));
  if (node->events.size() > kMaxNodeEvents) {
    node->events.erase(node->events.begin(),
                       node->events.end() - kMaxNodeEvents);
  }
}

NodeRecord DrainNode(const NodeRecord& before, Drain drain) {
  NodeRecord node = before;
  AddEvent(&node, Reason::kNodeDrain,
           fmt::format("{}; its jobs {}", Describe(drain),
                       drain.grace ? fmt::format("are moved away within {}",
                                                 FormatDuration(*drain.grace))
                                   : "run to their end"),
           drain.time);
  node.state_time = drain.time;
  node.drain = std::move(drain);
  return node;
}

NodeRecord UndrainNode(const NodeRecord& before, bool quarantined,
                       const std::string& requester, WallTime now) {
  NodeRecord node = before;
  std::vector<std::string> what;
  if (node.drain) what.push_back("undrained");
  if (quarantined) what.push_back("quarantine ended");
  ClearFaults({}, now, &node, &what);
  if (what.empty()) return node;
  node.drain.reset();
  node.state_time = now;
  AddEvent(&node, Reason::kNodeUndrain,
           fmt::format("{} by {}: gets work again", fmt::join(what, ", "),
                       requester),
           now);
  return node;
}

NodeRecord LiftFaults(const NodeRecord& before,
                      const std::vector<int32_t>& gpus,
                      const std::string& requester, WallTime now) {
  NodeRecord node = before;
  std::vector<std::string> what;
  ClearFaults(gpus, now, &node, &what);
  if (what.empty()) return node;
  AddEvent(&node, Reason::kNodeGpuReturned,
           fmt::format("{} by {}: gets work again", fmt::join(what, ", "),
                       requester),
           now);
  return node;
}

std::vector<int32_t> SilentGpus(const NodeReadings& readings) {
  std::vector<int32_t> silent;
  for (const GpuUsage& gpu : readings.gpus) {
    if (IsSilent(gpu)) silent.push_back(gpu.index);
  }
  return silent;
}

}  // namespace lockstep::server
