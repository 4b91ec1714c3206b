#include "worker/agent/readings/gpu_reclaims.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace lockstep::worker::agent {

using devices::GpuProcess;
using devices::GpuReading;
using devices::GpuValue;

bool GpuReclaims::Hold(const std::map<int32_t, JobName>& held, Time now) {
  for (const auto& [index, job] : held) {
    Use& use = uses_[index];
    use.held = true;
    use.job = job;
    use.released.reset();
  }
  bool released = false;
  for (auto& [index, use] : uses_) {
    if (!use.held || held.contains(index)) continue;
    use.held = false;
    use.released = now;
    use.judged = false;
    use.others.clear();
    use.reclaim = GpuReclaim();
    released = true;
  }
  return released;
}

bool GpuReclaims::Take(const std::vector<Gpu>& offered,
                       const std::vector<GpuReading>& readings, MonoTime begun,
                       Time now) {
  bool changed = false;
  for (const Gpu& gpu : offered) {
    const auto reading = std::find_if(
        readings.begin(), readings.end(),
        [&](const GpuReading& each) { return each.index == gpu.index; });
    if (reading == readings.end() || !reading->up) continue;
    changed = TakeOne(gpu, *reading, begun, now) || changed;
  }
  return changed;
}

bool GpuReclaims::TakeOne(const Gpu& gpu, const GpuReading& reading,
                          MonoTime begun, Time now) {
  const bool known = uses_.contains(gpu.index);
  Use& use = uses_[gpu.index];
  if (use.held) return false;
  const auto baseline = baselines_.find(gpu.uuid);
  if (!known && baseline != baselines_.end()) {
    // An earlier daemon's ranks may have left something.
    use.released = Time{begun, now.wall};
  }
  if (use.released && begun < use.released->mono) return false;

  const auto used = reading.Get(GpuValue::kMemoryUsed);
  const int64_t bytes = static_cast<int64_t>(used.value_or(0));
  GpuReclaim reclaim;
  if (use.released) {
    reclaim.index = gpu.index;
    reclaim.since = use.released->wall;
    reclaim.job = use.job;
    reclaim.memory_used_bytes = bytes;
    for (const GpuProcess& process :
         reading.processes.value_or(std::vector<GpuProcess>())) {
      if (!use.own || use.own->contains(process.pid)) continue;
      const auto seen = use.others.emplace(process.pid, now.wall).first;
      if (reclaim.processes.size() == kMaxReclaimProcesses) break;
      HeldProcess held;
      held.pid = process.pid;
      held.gpu_memory_bytes = process.memory_bytes;
      held.since = seen->second;
      reclaim.processes.push_back(std::move(held));
    }
    use.judged = true;
    bool more = false;
    if (used && baseline != baselines_.end()) {
      reclaim.baseline_bytes = baseline->second;
      more = bytes > baseline->second + kSlack;
    }
    use.reclaim = std::move(reclaim);
    if (more || !use.reclaim.processes.empty()) return false;
    use.released.reset();
  }
  // It is free.
  if (reading.processes) {
    use.own.emplace();
    for (const GpuProcess& process : *reading.processes) {
      use.own->insert(process.pid);
    }
  }
  if (!used || (baseline != baselines_.end() && baseline->second <= bytes)) {
    return false;
  }
  baselines_[gpu.uuid] = bytes;
  return true;
}

bool GpuReclaims::Awaits(const std::set<int32_t>& gpus) const {
  return std::any_of(gpus.begin(), gpus.end(), [&](int32_t index) {
    const auto use = uses_.find(index);
    return use != uses_.end() && use->second.released && !use->second.judged;
  });
}

std::vector<GpuReclaim> GpuReclaims::All() const {
  std::vector<GpuReclaim> all;
  for (const auto& [index, use] : uses_) {
    if (use.released && use.judged) all.push_back(use.reclaim);
  }
  return all;
}

GpuReclaims::Baselines ParseBaselines(const std::string& text,
                                      const std::string& boot_id) {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != boot_id) return {};
  GpuReclaims::Baselines baselines;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string uuid;
    int64_t bytes = -1;
    if (!(words >> uuid >> bytes) || bytes < 0) return {};
    baselines[uuid] = bytes;
  }
  return baselines;
}

std::string FormatBaselines(const GpuReclaims::Baselines& baselines,
                            const std::string& boot_id) {
  std::string text = boot_id + "\n";
  for (const auto& [uuid, bytes] : baselines) {
    text += fmt::format("{} {}\n", uuid, bytes);
  }
  return text;
}

}  // namespace lockstep::worker::agent
