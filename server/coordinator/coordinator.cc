#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <filesystem>

#include "common/base/logging.h"
#include "common/model/names.h"

namespace lockstep {
namespace {

// By name: /a/b and /a//b/ are the same.
bool SameDirectory(const std::string& a, const std::string& b) {
  return std::filesystem::path(a + "/").lexically_normal() ==
         std::filesystem::path(b + "/").lexically_normal();
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Store* store,
                         const Clock* clock, WatchHub* hub)
    : options_(std::move(options)),
      store_(store),
      steady_clock_(clock),
      hub_(hub),
      members_(options_.membership),
      answers_(options_.answers) {}

Status Coordinator::Load() {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(StoreSnapshot snapshot, store_->Load());
  const Time now = clock_->Now();
  epoch_ = snapshot.epoch;
  version_ = snapshot.version;
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
    auto stored = std::make_shared<const Job>(std::move(job));
    Apply(stored, now);
    Entry& entry = jobs_.at(stored->spec.name);
    // Limits of a state count from when it began; those that guard an
    // exchange with nodes begin anew, as the nodes have to come back first.
    entry.state_since =
        stored->state == JobState::kFinishing ? now.mono - in_state : now.mono;
  }
  hub_->Start(version_);
  LOG_INFO("store: {} jobs ({} live), {} nodes, version {}, epoch {}",
           jobs_.size(), live_.size(), nodes_.size(), version_, epoch_);
  return OkStatus();
}

bool Coordinator::store_healthy() const {
  MutexLock lock(&mu_);
  return store_healthy_;
}

// ---- Requests --------------------------------------------------------------

StatusOr<std::optional<std::string>> Coordinator::FindAnswer(
    const RequestKey& request) {
  if (request.id.empty()) return std::optional<std::string>();
  const AnsweredRequest* const known =
      answers_.Find(request.client, request.id);
  if (known == nullptr) return std::optional<std::string>();
  if (known->method != request.method ||
      known->content_hash != request.content_hash) {
    return WithReason(
        InvalidArgument("request_id {} was used for another request: draw a "
                        "new one for each command",
                        request.id),
        "REQUEST_ID_REUSED");
  }
  return std::optional<std::string>(known->response);
}

// Commits `job` with the answer to the command that made it so.
StatusOr<std::string> Coordinator::Answer(const RequestKey& request, Job job,
                                          const Encode& encode, Time now) {
  const JobName name = job.spec.name;
  // A command that changes nothing is remembered, but is no change.
  const auto known = jobs_.find(name);
  const bool news = known == jobs_.end() || !(job == *known->second.job);
  if (news) job.resource_version = version_ + 1;
  JobSnapshot snapshot;
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.time = now.wall;
  snapshot.bill = BillAt(job, options_.prices, now.wall);
  std::string response = encode(snapshot);
  std::map<JobName, Job> changed;
  if (news) changed.emplace(name, std::move(job));
  LOCKSTEP_RETURN_IF_ERROR(
      CommitJobs(std::move(changed), Remember(request, response, now), now));
  Touch(name);
  Reconcile(now);
  return response;
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

Status Coordinator::CheckNew(const JobSpec& spec) {
  if (jobs_.contains(spec.name)) {
    return WithReason(
        AlreadyExists("there is a job {} already; names are never used twice",
                      spec.name),
        "JOB_EXISTS");
  }
  if (deleted_.contains(spec.name)) {
    return WithReason(
        AlreadyExists("there was a job {}, which was deleted; names are never "
                      "used twice",
                      spec.name),
        "JOB_EXISTS");
  }
  // Each would take the other's checkpoints away.
  for (const JobName& name : live_) {
    const JobSpec& other = jobs_.at(name).job->spec;
    if (spec.kind != JobKind::kNative || other.kind != JobKind::kNative ||
        spec.output_directory.empty() ||
        !SameDirectory(spec.output_directory, other.output_directory)) {
      continue;
    }
    return WithReason(
        FailedPrecondition(
            "spec.output_directory: job {}, which has not ended, writes to {}; "
            "give this one a directory of its own, or wait",
            name, other.output_directory),
        "OUTPUT_IN_USE");
  }
  return CheckCanEverFit(spec, Hosts());
}

StatusOr<std::string> Coordinator::Submit(const RequestKey& request,
                                          const JobSpec& spec,
                                          const std::string& owner,
                                          const Encode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_RETURN_IF_ERROR(CheckNew(spec));
  const Time now = clock_->Now();
  return Answer(request, NewJob(spec, options_.new_uid(), owner, now), encode,
                now);
}

StatusOr<std::string> Coordinator::CancelJob(const RequestKey& request,
                                             const JobName& name,
                                             const MayChange& may,
                                             const Encode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(Entry * entry, FindEntry(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  const Time now = clock_->Now();
  return Answer(request, Cancel(*entry->job, request.client, now), encode, now);
}

StatusOr<std::string> Coordinator::RequestCheckpoint(const RequestKey& request,
                                                     const JobName& name,
                                                     const MayChange& may,
                                                     const Encode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(Entry * entry, FindEntry(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  const Time now = clock_->Now();
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, AddCheckpointDirective(*entry->job, now));
  return Answer(request, std::move(job), encode, now);
}

StatusOr<std::vector<TaskPlacement>> Coordinator::Plan(const JobSpec& spec,
                                                       Cause* waiting) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(CheckNew(spec));
  const Time now = clock_->Now();
  const Job job = NewJob(spec, "", "", now);
  ScheduleResult result =
      Schedule({{&job, Duration{}, false}}, Hosts(), options_.scheduler);
  if (!result.placed.empty()) return std::move(result.placed[0].placement);
  *waiting = result.waiting[spec.name];
  return std::vector<TaskPlacement>();
}

// ---- Views -----------------------------------------------------------------

// What a person should know of an active job that only memory tells.
std::optional<Cause> Coordinator::TroubleOf(const Entry& entry,
                                            const JobSnapshot& snapshot,
                                            Time now) {
  const Job& job = *entry.job;
  for (const NodeName& node : NodesOf(job)) {
    const Member* member = members_.Find(node);
    if (member == nullptr || member->state == NodeState::kReady) continue;
    Cause trouble{
        Reason::kNodeUnknown,
        fmt::format("node {} is {} ({}); its ranks are left alone until it is "
                    "back",
                    node, Name(member->state), member->message)};
    if (job.failing || job.outcome) {
      // Why it is being stopped is the news; this is why that takes long.
      trouble.reason = job.cause.reason;
      trouble.message = job.cause.message + "; " + trouble.message;
    }
    return trouble;
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
  return Cause{Reason::kRunning,
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
      }
    }
    if (job.state == JobState::kRunning || job.state == JobState::kFinishing) {
      snapshot.progress = entry.meter.Info();
    }
    if (!snapshot.waiting) snapshot.waiting = TroubleOf(entry, snapshot, now);
  }
  snapshot.bill = BillAt(job, options_.prices, now.wall);
  return snapshot;
}

StatusOr<JobSnapshot> Coordinator::GetJob(const JobName& name) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(name));
  return SnapshotOf(*entry, clock_->Now());
}

std::vector<JobSnapshot> Coordinator::ListJobs() {
  MutexLock lock(&mu_);
  const Time now = clock_->Now();
  std::vector<JobSnapshot> jobs;
  jobs.reserve(jobs_.size());
  for (const auto& [name, entry] : jobs_) {
    jobs.push_back(SnapshotOf(entry, now));
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
