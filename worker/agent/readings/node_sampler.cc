#include "worker/agent/readings/node_sampler.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/host/stuck_processes.h"
#include "worker/agent/readings/rank_readings.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxBaselinesFile = 1 << 20;

std::string BaselinesPath(const std::string& dir) {
  return JoinPath(dir, "gpu-baselines");
}

}  // namespace

NodeSampler::NodeSampler(
    const DaemonSetup* setup, const devices::GpuSampler* gpus,
    DiskFloor disk_floor,
    std::function<StatusOr<DiskSpace>(const std::string&)> disk_space)
    : setup_(setup),
      gpus_(gpus),
      disk_floor_(disk_floor),
      disk_space_(std::move(disk_space)),
      reclaims_(ParseBaselines(
          RealFileSystem()
              ->Read(BaselinesPath(setup->dir), kMaxBaselinesFile)
              .value_or(""),
          setup->node.boot_id)) {}

std::optional<double> NodeSampler::SampleHost() {
  const auto host = ReadHostMetrics();
  if (!host.ok()) return std::nullopt;
  const double total = host->cpu.Total() - last_cpu_.Total();
  const double busy = host->cpu.Busy() - last_cpu_.Busy();
  if (total > 0) readings_.cpu_utilization = std::clamp(busy / total, 0.0, 1.0);
  last_cpu_ = host->cpu;
  readings_.memory_available_bytes =
      static_cast<int64_t>(host->memory.available);
  if (host->memory.total == 0) return std::nullopt;
  return static_cast<double>(host->memory.available) /
         static_cast<double>(host->memory.total);
}

void NodeSampler::CheckDisk() {
  const auto space = disk_space_(setup_->dir);
  if (!space.ok()) return;
  const Status enough = CheckDiskSpace(setup_->dir, *space, disk_floor_);
  if (!enough.ok() && !disk_is_full_) LOG_ERROR("{}", Message(enough));
  if (enough.ok() && disk_is_full_) {
    LOG_INFO("the disk of {} has enough space again", setup_->dir);
  }
  disk_is_full_ = !enough.ok();
}

bool NodeSampler::SampleGpus(Time now) {
  readings_.gpus.clear();
  if (gpus_ == nullptr) return false;
  const devices::GpuStatus status = gpus_->Latest(now.mono);
  // Before the first reading nothing is reported. After it, a GPU without a
  // reading gets no new work.
  TakeXids(status.xids);
  if (status.samples == 0) return false;
  readings_.gpus = ToGpuUsage(setup_->node.gpus, status.readings);
  TakeReclaims(status, now);
  return true;
}

void NodeSampler::HoldGpus(const std::map<int32_t, JobName>& held, Time now) {
  if (gpus_ != nullptr && reclaims_.Hold(held, now)) gpus_->ReadSoon();
}

void NodeSampler::TakeReclaims(const devices::GpuStatus& status, Time now) {
  if (reclaims_.Take(setup_->node.gpus, status.readings, status.begun, now)) {
    const Status saved = RealFileSystem()->WriteAtomic(
        BaselinesPath(setup_->dir),
        FormatBaselines(reclaims_.baselines(), setup_->node.boot_id), 0600);
    if (!saved.ok()) LOG_WARN("{}", Message(saved));
  }
  readings_.reclaims = reclaims_.All();
  for (GpuReclaim& reclaim : readings_.reclaims) {
    for (HeldProcess& process : reclaim.processes) {
      const HeldProcess known =
          std::exchange(process, DescribeHeld(process.pid));
      process.since = known.since;
      process.gpu_memory_bytes = known.gpu_memory_bytes;
      process.job = reclaim.job;
    }
  }
}

void NodeSampler::TakeXids(const std::vector<devices::GpuXids>& xids) {
  known_xids_.resize(xids.size());
  for (size_t i = 0; i < xids.size(); ++i) {
    const devices::GpuXids before = std::exchange(known_xids_[i], xids[i]);
    const int32_t index = gpus_->gpus()[i].index;
    const bool offered =
        std::any_of(setup_->node.gpus.begin(), setup_->node.gpus.end(),
                    [&](const Gpu& gpu) { return gpu.index == index; });
    if (!offered) continue;
    constexpr uint64_t kNewest = devices::GpuXids::kNewest;
    const uint64_t now = xids[i].total;
    // Each number once.
    std::set<uint64_t> numbers;
    for (uint64_t n = std::max(before.total, now - std::min(now, kNewest));
         n < now; ++n) {
      numbers.insert(xids[i].newest[n % kNewest]);
    }
    for (const uint64_t number : numbers) {
      if (readings_.gpu_errors.size() >= kMaxGpuErrors) break;
      readings_.gpu_errors.push_back(
          {index, static_cast<int32_t>(std::min<uint64_t>(number, 100'000))});
    }
  }
}

NodeReadings NodeSampler::TakeReadings() {
  NodeReadings readings = readings_;
  readings_.gpu_errors.clear();
  return readings;
}

void NodeSampler::ReturnErrors(const std::vector<GpuError>& errors) {
  for (const GpuError& error : errors) {
    if (readings_.gpu_errors.size() >= kMaxGpuErrors) break;
    readings_.gpu_errors.push_back(error);
  }
}

}  // namespace lockstep::worker::agent
