// What is deleted: by command, and by age.

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {
namespace {

constexpr Duration kSweepInterval = std::chrono::seconds(1);
// Deleted in one commit; the rest waits for the next sweep.
constexpr size_t kMaxDeletions = 50;

}  // namespace

Status Coordinator::CommitDeletion(const std::vector<JobName>& names,
                                   std::optional<AnsweredRequest> request) {
  StoreBatch batch;
  batch.delete_jobs = names;
  batch.request = std::move(request);
  LOCKSTEP_RETURN_IF_ERROR(Commit(&batch));
  for (const JobName& name : names) {
    const auto it = jobs_.find(name);
    const std::shared_ptr<const Job> job = it->second.job;
    ended_.erase({job->end_time.value_or(job->state_time), name});
    uids_.erase(job->uid);
    dirty_.erase(name);
    // A node that is away may still have something: it is disowned then.
    jobs_.erase(it);
    deleted_.insert(name);
    if (options_.on_job_deleted) options_.on_job_deleted(job->uid);
    TellDropWork(job->uid);
  }
  hub_->PublishDeleted(version_, names);
  return OkStatus();
}

StatusOr<std::string> Coordinator::DeleteJob(const RequestKey& request,
                                             const JobName& name,
                                             const MayChange& may,
                                             const std::string& answer) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto known, FindAnswer(request));
  if (known) return *std::move(known);
  LOCKSTEP_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  if (!IsFinal(entry->job->state)) {
    return WithReason(
        FailedPrecondition("job {} is {} and has not ended: cancel it first",
                           name, Name(entry->job->state)),
        "NOT_ENDED");
  }
  LOCKSTEP_RETURN_IF_ERROR(
      CommitDeletion({name}, Remember(request, answer, clock_->Now())));
  LOG_INFO("job {}: deleted by {}", name, request.client);
  return answer;
}

LogOwner Coordinator::FindLogOwner(const std::string& uid) {
  MutexLock lock(&mu_);
  LogOwner owner;
  const auto it = uids_.find(uid);
  if (it == uids_.end()) return owner;
  owner.known = true;
  const Job& job = *jobs_.at(it->second).job;
  if (IsFinal(job.state))
    owner.end_time = job.end_time.value_or(job.state_time);
  return owner;
}

StatusOr<Coordinator::FoundWork> Coordinator::FindWork(const JobName& name,
                                                       int32_t rank,
                                                       const MayChange& may) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const Entry* entry, FindEntry(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  LOCKSTEP_ASSIGN_OR_RETURN(WorkSite site, WorkSiteOf(*entry->job, rank));
  return FoundWork{entry->job->uid, std::move(site)};
}

void Coordinator::DropWork(const std::string& uid) {
  MutexLock lock(&mu_);
  TellDropWork(uid);
}

// A node that is away says what it has when it comes back.
void Coordinator::TellDropWork(const std::string& uid) {
  for (auto& [name, soft] : nodes_) {
    mu_.AssertHeld();
    if (!soft.session || soft.work_jobs.erase(uid) == 0) continue;
    soft.session->link->SendDropWork({uid});
  }
}

void Coordinator::Sweep(Time now) {
  if (!store_healthy_ || now.mono - last_sweep_ < kSweepInterval) return;
  last_sweep_ = now.mono;
  std::vector<JobName> names;
  const size_t surplus = ended_.size() > options_.retain_job_count
                             ? ended_.size() - options_.retain_job_count
                             : 0;
  for (const auto& [end, name] : ended_) {
    if (names.size() == kMaxDeletions) break;
    if (now.wall - end <= options_.retain_jobs && names.size() >= surplus) {
      break;
    }
    names.push_back(name);
  }
  if (!names.empty() && CommitDeletion(names, std::nullopt).ok()) {
    LOG_INFO("deleted {} jobs that ended long ago, from {}", names.size(),
             names.front());
  }
  // Without commands nothing else would forget what was answered.
  if (!answers_.empty() && now.wall - last_forget_ > std::chrono::minutes(10)) {
    (void)CommitJobs({}, std::nullopt, now);
  }
  std::erase_if(nodes_, [&](const auto& entry) {
    mu_.AssertHeld();
    const NodeSoft& soft = entry.second;
    return members_.Find(entry.first) == nullptr && soft.jobs.empty() &&
           soft.gangs.empty() && !soft.session;
  });
}

}  // namespace lockstep
