#include "worker/agent/gang_reports.h"

#include <utility>

#include "common/base/logging.h"
#include "common/wire/worker_wire.h"

namespace lockstep::worker::agent {
namespace {

// A driver that does not answer keeps no gang's end from being reported.
constexpr Duration kLongestGpuWait = std::chrono::milliseconds(500);
constexpr Duration kGpuLook = std::chrono::milliseconds(10);

}  // namespace

GangReports::GangReports(const Parts& parts,
                         std::function<void(const v1::WorkerMessage&)> send)
    : parts_(parts),
      send_(std::move(send)),
      leftovers_(parts.loop, parts.core, parts.work,
                 [this](const GangKey& key) { Report(key); }) {}

GangStatus GangReports::StatusOf(const GangKey& key,
                                 const LocalGang& gang) const {
  GangStatus status = gang.status;
  for (RankStatus& rank : status.ranks) {
    const RankRef ref{key, rank.rank};
    if (rank.exit || !parts_.ranks->table().all().contains(ref)) continue;
    rank.progress = parts_.ranks->sampler()->ProgressOf(ref);
    rank.usage = parts_.ranks->sampler()->UsageOf(ref);
  }
  leftovers_.AddTo(key, &status);
  parts_.times->AddTo(key, gang, parts_.loop->Now().mono, &status);
  return status;
}

void GangReports::Report(const GangKey& key) {
  const LocalGang* gang = parts_.core->Find(key);
  if (gang == nullptr) return;
  // From LAUNCHED on there is something that the next daemon must find.
  if (gang->status.phase >= GangPhase::kLaunched &&
      gang->assignment.spec.has_value()) {
    Save(key);
  }
  // Both begin at once.
  const bool gpus = WaitsForGpus(key, *gang);
  if (leftovers_.Awaits(key) || gpus) return;
  v1::WorkerMessage message;
  *message.mutable_gang_status() = ToProto(StatusOf(key, *gang));
  send_(message);
}

bool GangReports::WaitsForGpus(const GangKey& key, const LocalGang& gang) {
  if (gang.status.phase != GangPhase::kStopped) {
    gpu_waits_.erase(key);
    return false;
  }
  const MonoTime now = parts_.loop->Now().mono;
  const auto [it, first] =
      gpu_waits_.try_emplace(key, GpuWait{now + kLongestGpuWait});
  GpuWait& wait = it->second;
  if (first) parts_.sampler->ReleaseGpus(key, gang);
  if (wait.over) return false;
  if (now < wait.end && parts_.sampler->AwaitsGpus(gang)) {
    if (std::exchange(wait.looks, true)) return true;
    parts_.loop->At(now + kGpuLook, lifetime_.Guard([this, key] {
      const auto found = gpu_waits_.find(key);
      if (found == gpu_waits_.end()) return;
      found->second.looks = false;
      Report(key);
    }));
    return true;
  }
  wait.over = true;
  if (!parts_.sampler->reclaims().empty()) parts_.beat();
  return false;
}

void GangReports::Forget(const GangKey& key) {
  leftovers_.Forget(key);
  gpu_waits_.erase(key);
}

void GangReports::Save(const GangKey& key) {
  const LocalGang* gang = parts_.core->Find(key);
  if (gang == nullptr) return;
  const Status saved =
      parts_.store->Save({gang->assignment, StatusOf(key, *gang),
                          parts_.ranks->links()->NoncesOf(key)});
  if (!saved.ok()) LOG_ERROR("{}: {}", Describe(key), Message(saved));
}

}  // namespace lockstep::worker::agent
