#include "server/coordinator/coordinator.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/model/names.h"
#include "server/core/lineage.h"

namespace lockstep {
Coordinator::Coordinator(CoordinatorOptions options, Store* store,
                         const Clock* clock, WatchHub* hub)
    : options_(std::move(options)),
      store_(store),
      steady_clock_(clock),
      hub_(hub),
      members_(options_.membership),
      strikes_(options_.strikes),
      answers_(options_.answers),
      prices_(options_.prices) {}

Status Coordinator::Load() {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(StoreSnapshot snapshot, store_->Load());
  const Time now = clock_->Now();
  epoch_ = snapshot.epoch;
  version_ = snapshot.version;
  history_ = snapshot.history;
  for (const StorePoint& replaced : snapshot.replaced_histories) {
    replaced_histories_.push_back(replaced.history);
  }
  epoch_starts_ = snapshot.epoch_starts;
  generation_floor_ = snapshot.generation_floor;
  deleted_.insert(snapshot.deleted_jobs.begin(), snapshot.deleted_jobs.end());
  for (const NodeRecord& node : snapshot.nodes) {
    members_.Restore(node, now);
    nodes_[node.info.name];
  }
  for (AnsweredRequest& request : snapshot.requests) {
    answers_.Add(std::move(request));
  }
  for (Job& job : snapshot.jobs) {
    const Duration in_state = std::max(Duration{}, now.wall - job.state_time);
    // Stored before it was kept short.
    CompactLineage(&job.lineage);
    // A replaced history may have used the next numbers.
    if (!IsFinal(job.state)) job.generation_floor = generation_floor_;
    auto stored = std::make_shared<const Job>(std::move(job));
    Apply(stored, now);
    Entry& entry = jobs_.at(stored->spec.name);
    // Limits of a state count from when it began; those that guard an
    // exchange with nodes begin anew, as the nodes have to come back first.
    entry.state_since =
        stored->state == JobState::kFinishing ? now.mono - in_state : now.mono;
  }
  for (const auto& [node, soft] : nodes_) {
    members_.NoteTasks(node, !soft.jobs.empty());
  }
  hub_->Start(version_);
  NoteRestart(now);
  LOG_INFO("store: {} jobs ({} live), {} nodes, version {}, epoch {}",
           jobs_.size(), live_.size(), nodes_.size(), version_, epoch_);
  return OkStatus();
}

// A gap in what a job's history says has a reason.
void Coordinator::NoteRestart(Time now) {
  std::map<JobName, Job> changed;
  for (const JobName& name : live_) {
    Job job = *jobs_.at(name).job;
    if (!IsActive(job.state)) continue;
    AddEvent(&job, Reason::kCoordinatorRestarted,
             "the coordinator was started again; its ranks went on meanwhile",
             now);
    changed.emplace(name, std::move(job));
  }
  if (changed.empty()) return;
  // Worth a word, not worth a refusal to start.
  if (Status s = CommitJobs(std::move(changed), std::nullopt, now); !s.ok()) {
    LOG_WARN("the restart is not in the jobs' history: {}", Message(s));
  }
}

void Coordinator::SetPrices(Prices prices) {
  MutexLock lock(&mu_);
  prices_ = std::move(prices);
}

Prices Coordinator::prices() const {
  MutexLock lock(&mu_);
  return prices_;
}

std::set<std::string> Coordinator::NeededPackages() const {
  MutexLock lock(&mu_);
  std::set<std::string> digests;
  for (const JobName& name : live_) {
    for (const Package& package : jobs_.at(name).job->spec.packages) {
      digests.insert(package.digest);
    }
  }
  return digests;
}

bool Coordinator::store_healthy() const {
  MutexLock lock(&mu_);
  return store_healthy_;
}

Status Coordinator::taken_over() const {
  MutexLock lock(&mu_);
  return taken_over_;
}

StatusOr<Coordinator::Entry*> Coordinator::FindEntry(const JobName& name) {
  const auto it = jobs_.find(name);
  if (it != jobs_.end()) return &it->second;
  if (deleted_.contains(name)) {
    return WithReason(NotFound("job {} was deleted", name), "JOB_DELETED");
  }
  std::vector<std::string> names;
  for (const auto& [known, entry] : jobs_) names.push_back(known);
  const std::string near = Nearest(name, names);
  return WithReason(
      near.empty()
          ? NotFound("there is no job {}", name)
          : NotFound("there is no job {}; did you mean {}?", name, near),
      "NO_SUCH_JOB");
}

// ---- Views -----------------------------------------------------------------

Bill Coordinator::BillOf(const Job& job, Time now) {
  return BillAt(job, prices_, now.wall,
                [this](const NodeName& node, int32_t index) -> std::string {
                  mu_.AssertHeld();
                  const Member* const member = members_.Find(node);
                  if (member == nullptr) return "";
                  for (const Gpu& gpu : member->info.gpus) {
                    if (gpu.index == index) return gpu.model;
                  }
                  return "";
                });
}

std::optional<Stall> Coordinator::StandingOf(const Entry& entry, MonoTime now) {
  const Job& job = *entry.job;
  if (job.state != JobState::kRunning || job.failing ||
      job.spec.kind != JobKind::kNative) {
    return std::nullopt;
  }
  return entry.stall.Standing(static_cast<int32_t>(RanksOf(job).size()), now);
}

// What a person should know of an active job that only memory tells: the one
// answer of lists, descriptions and pages.
std::optional<Cause> Coordinator::TroubleOf(const Entry& entry,
                                            const JobSnapshot& snapshot,
                                            Time now) {
  const Job& job = *entry.job;
  for (const NodeName& node : NodesOf(job)) {
    const Member* member = members_.Find(node);
    if (member == nullptr || member->state == NodeState::kReady) continue;
    Cause trouble{
        Reason::kNodeUnknown,
        fmt::format("node {} has been silent for {} ({}: {}); its ranks are "
                    "left alone until it is back",
                    node, FormatDuration(now.mono - member->last_beat),
                    Name(member->state), member->message)};
    if (job.failing || job.outcome) {
      // Why it is being stopped is the news; this is why that takes long.
      trouble.reason = job.cause.reason;
      trouble.message = job.cause.message + "; " + trouble.message;
    }
    return trouble;
  }
  if (snapshot.standing) {
    return Cause{Reason::kNoProgress, Describe(job, *snapshot.standing)};
  }
  const auto last_step = entry.meter.last_step_time();
  if (job.state != JobState::kRunning || job.failing ||
      job.spec.kind != JobKind::kNative || !last_step ||
      now.mono - *last_step < kQuietTime) {
    return std::nullopt;
  }
  std::string doing;
  for (const auto& [number, rank] : snapshot.live) {
    doing += fmt::format(
        "{}rank {} in {}", doing.empty() ? "" : ", ", number,
        rank.progress.phase.empty() ? "no phase" : rank.progress.phase);
    if (number >= 7) {
      doing += ", ...";
      break;
    }
  }
  return Cause{Reason::kNoProgress,
               fmt::format("no step for {}: {}",
                           FormatDuration(now.mono - *last_step), doing)};
}

JobSnapshot Coordinator::SnapshotOf(const Entry& entry, Time now) {
  JobSnapshot snapshot;
  snapshot.job = entry.job;
  snapshot.time = now.wall;
  const Job& job = *entry.job;
  if (job.state == JobState::kQueued || job.state == JobState::kPlacing) {
    snapshot.waiting = entry.waiting;
  }
  if (!IsFinal(job.state)) {
    for (const NodeName& node : NodesOf(job)) {
      const NodeSoft& soft = nodes_[node];
      const auto gang = soft.gangs.find({job.spec.name, job.generation});
      if (gang == soft.gangs.end()) continue;
      for (const RankStatus& rank : gang->second.ranks) {
        snapshot.live[rank.rank] = rank;
        snapshot.live[rank.rank].usage = UsageOf(job, rank);
      }
    }
    if (job.state == JobState::kRunning || job.state == JobState::kFinishing) {
      snapshot.progress = entry.meter.Info();
    }
    snapshot.standing = StandingOf(entry, now.mono);
    if (!snapshot.waiting) snapshot.waiting = TroubleOf(entry, snapshot, now);
  }
  snapshot.bill = BillOf(job, now);
  return snapshot;
}

StatusOr<JobSnapshot> Coordinator::GetJob(const JobName& name) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(name));
  return SnapshotOf(*entry, clock_->Now());
}

std::string Coordinator::OwnerOf(const JobName& name) const {
  MutexLock lock(&mu_);
  const auto it = jobs_.find(name);
  return it == jobs_.end() ? std::string() : it->second.job->owner;
}

int64_t Coordinator::QueuePosition(const JobName& name) const {
  MutexLock lock(&mu_);
  const auto it = jobs_.find(name);
  if (it == jobs_.end()) return 0;
  const auto place = queued_.find(PlaceInQueue(*it->second.job));
  if (place == queued_.end()) return 0;
  return 1 + std::distance(queued_.begin(), place);
}

std::vector<JobSnapshot> Coordinator::ListJobs() {
  MutexLock lock(&mu_);
  const Time now = clock_->Now();
  std::vector<JobSnapshot> jobs;
  jobs.reserve(jobs_.size());
  for (const auto& [name, entry] : jobs_) {
    jobs.push_back(SnapshotOf(entry, now));
  }
  std::map<JobName, int64_t> positions;
  for (const QueuePlace& place : queued_) {
    const int64_t position = static_cast<int64_t>(positions.size()) + 1;
    positions[place.job] = position;
  }
  for (JobSnapshot& job : jobs) {
    const auto position = positions.find(job.job->spec.name);
    if (position != positions.end()) job.queue_position = position->second;
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const JobSnapshot& a, const JobSnapshot& b) {
                     return a.job->create_time > b.job->create_time;
                   });
  return jobs;
}

int64_t Coordinator::version() {
  MutexLock lock(&mu_);
  return version_;
}

CoordinatorStats Coordinator::Stats() {
  MutexLock lock(&mu_);
  const Time now = clock_->Now();
  CoordinatorStats stats;
  for (const JobState state : kAllJobStates) stats.jobs[state] = 0;
  for (const NodeState state : kAllNodeStates) stats.nodes[state] = 0;
  for (const auto& [name, entry] : jobs_) {
    ++stats.jobs[entry.job->state];
    if (entry.job->state == JobState::kQueued) {
      stats.oldest_queued_seconds =
          std::max(stats.oldest_queued_seconds,
                   ToSeconds(now.wall - entry.job->create_time));
    }
  }
  for (const auto& [name, member] : members_.members()) {
    const NodeSnapshot node = SnapshotOf(member);
    ++stats.nodes[node.member.state];
    stats.capacity.cpus += member.info.capacity.cpus;
    stats.capacity.memory_bytes += member.info.capacity.memory_bytes;
    stats.capacity.gpus += static_cast<int32_t>(member.info.gpus.size());
    stats.allocated.cpus += node.allocated.cpus;
    stats.allocated.memory_bytes += node.allocated.memory_bytes;
    stats.allocated.gpus += node.allocated.gpus;
  }
  stats.commits = commits_;
  stats.commit_seconds = commit_seconds_;
  stats.failed_commits = failed_commits_;
  return stats;
}

}  // namespace lockstep
