#include "worker/agent/agent_sampler.h"

#include <map>
#include <set>
#include <string>
#include <tuple>

namespace lockstep::worker::agent {
namespace {

constexpr Duration kPeriod = std::chrono::seconds(1);
// How long a finished task's last readings stay on /metrics.
constexpr Duration kKeepFinished = std::chrono::minutes(15);
constexpr size_t kMostFinished = 64;

std::set<int32_t> GpusOf(const LocalGang& gang) {
  std::set<int32_t> gpus;
  if (!gang.assignment.spec) return gpus;
  for (const LocalTask& task : gang.assignment.spec->tasks) {
    gpus.insert(task.gpus.begin(), task.gpus.end());
  }
  return gpus;
}

}  // namespace

AgentSampler::AgentSampler(const Parts& parts)
    : parts_(parts),
      metrics_(std::make_shared<AgentMetrics>(
          AgentMetrics::Options{.gpus = parts.gpus,
                                .hostname = parts.setup->node.hostname,
                                .dir = parts.setup->dir,
                                .offered = parts.setup->node.gpus})),
      node_(parts.setup, parts.gpus, parts.disk->disk_floor,
            parts.disk->disk_space) {}

void AgentSampler::Sample(bool connected, uint64_t reconnects) {
  const MonoTime now = parts_.loop->Now().mono;
  if (now < next_) return;
  next_ = now + kPeriod;
  if (const auto available = node_.SampleHost()) {
    parts_.ranks->exits()->NoteAvailable(*available);
  }
  if (parts_.ranks->table().AnyLive()) SampleRanks();
  orphans_.Look(parts_.loop->Now().mono);
  node_.CheckDisk();
  if (node_.disk_is_full()) parts_.work->DropOldest();
  node_.HoldGpus(HeldGpus(), parts_.loop->Now());
  if (node_.SampleGpus(parts_.loop->Now())) {
    parts_.ranks->sampler()->SampleGpus(node_.readings().gpus);
  }
  parts_.ranks->stuck()->Look();
  node_.SetStuck(parts_.ranks->stuck()->all());
  Publish(connected, reconnects);
}

std::map<int32_t, JobName> AgentSampler::HeldGpus() const {
  std::map<int32_t, JobName> held;
  for (const auto& [key, gang] : parts_.core->core().gangs()) {
    if (IsOver(gang.status.phase)) continue;
    for (const int32_t gpu : GpusOf(gang)) held[gpu] = key.job;
  }
  return held;
}

void AgentSampler::ReleaseGpus(const GangKey& key, const LocalGang& gang) {
  // It may have come and gone between two samples.
  std::map<int32_t, JobName> held = HeldGpus();
  for (const int32_t gpu : GpusOf(gang)) held.emplace(gpu, key.job);
  node_.HoldGpus(held, parts_.loop->Now());
  node_.HoldGpus(HeldGpus(), parts_.loop->Now());
}

bool AgentSampler::AwaitsGpus(const LocalGang& gang) {
  const std::set<int32_t> gpus = GpusOf(gang);
  if (parts_.gpus == nullptr || gpus.empty()) return false;
  node_.SampleGpus(parts_.loop->Now());
  return node_.AwaitsGpus(gpus);
}

void AgentSampler::SampleRanks() {
  parts_.ranks->sampler()->Sample();
  parts_.ranks->WatchPorts();
  parts_.ranks->exits()->ReadHostOomKills();
}

std::vector<GangProgress> AgentSampler::Progress() {
  std::vector<GangProgress> all;
  RankSampler* sampler = parts_.ranks->sampler();
  for (const auto& [key, gang] : parts_.core->core().gangs()) {
    GangProgress progress{key.job, key.generation, {}};
    for (const RankStatus& rank : gang.status.ranks) {
      const RankRef ref{key, rank.rank};
      if (rank.exit || !parts_.ranks->table().all().contains(ref)) continue;
      sampler->ReadPage(ref, /*last=*/false);
      RankStatus status;
      status.rank = rank.rank;
      status.progress = sampler->ProgressOf(ref);
      status.usage = sampler->UsageOf(ref);
      progress.ranks.push_back(std::move(status));
    }
    if (!progress.ranks.empty()) all.push_back(std::move(progress));
  }
  return all;
}

void AgentSampler::KeepFinished(std::vector<TaskReading> readings) {
  const MonoTime now = parts_.loop->Now().mono;
  for (TaskReading& reading : readings) {
    finished_.emplace_back(now, std::move(reading));
  }
}

std::vector<TaskReading> AgentSampler::NewestReadings() {
  const MonoTime now = parts_.loop->Now().mono;
  std::erase_if(finished_, [&](const auto& entry) {
    return now - entry.first > kKeepFinished;
  });
  if (finished_.size() > kMostFinished) {
    finished_.erase(finished_.begin(), finished_.end() - kMostFinished);
  }
  std::map<std::tuple<std::string, std::string, int32_t, int32_t>, TaskReading>
      newest;
  const auto put = [&](const TaskReading& task) {
    newest[{task.job, task.role, task.index, task.rank}] = task;
  };
  for (const auto& [when, task] : finished_) put(task);
  std::map<std::string, int32_t> chiefs;
  for (const auto& [key, gang] : parts_.core->core().gangs()) {
    if (!IsOver(gang.status.phase)) chiefs[key.job] = gang.chief;
  }
  for (TaskReading task : parts_.ranks->Readings()) {
    const auto chief = chiefs.find(task.job);
    if (chief != chiefs.end()) task.chief = task.rank == chief->second;
    put(task);
  }
  std::vector<TaskReading> readings;
  for (auto& [key, task] : newest) readings.push_back(std::move(task));
  return readings;
}

void AgentSampler::Publish(bool connected, uint64_t reconnects) {
  const NodeInfo& node = parts_.setup->node;
  AgentReadings readings;
  readings.cpus_offered = node.capacity.cpus;
  readings.memory_offered_bytes = node.capacity.memory_bytes;
  if (const auto& end = node.certificate_end_time) {
    readings.certificate_end = ToSeconds(end->time_since_epoch());
  }
  readings.connected = connected;
  readings.reconnects = reconnects;
  readings.dropped_work = parts_.work->dropped_jobs();
  const WarmRanks& warm = *parts_.ranks->warm();
  readings.warm_ready = warm.ready();
  readings.warm_starts = warm.starts();
  readings.warm_failures = warm.failures();
  readings.tasks = NewestReadings();
  metrics_->Set(std::move(readings));
}

}  // namespace lockstep::worker::agent
