#include "server/coordinator/job_registry.h"

#include <algorithm>

#include "common/base/logging.h"
#include "common/model/names.h"
#include "server/core/job_size.h"

namespace lockstep::server {
namespace {

// Whether limits of a state begin anew with `job`.
bool BeginsAnew(const Job* before, const Job& job) {
  return before == nullptr || before->state != job.state ||
         before->generation != job.generation ||
         before->cluster.has_value() != job.cluster.has_value() ||
         before->failing.has_value() != job.failing.has_value();
}

}  // namespace

std::optional<Stall> JobEntry::StalledRank(MonoTime now) const {
  if (job->state != JobState::kRunning || job->failing) return std::nullopt;
  if (HangPolicyOf(job->spec) == HangPolicy::kOff) return std::nullopt;
  if (IsRecovering(*job)) return std::nullopt;
  return stall.StalledRank(Ranks(), now);
}

StallWatch::Ranks JobEntry::Ranks() const {
  StallWatch::Ranks ranks;
  for (const RankStatus* rank : RanksOf(*job)) {
    ++ranks.count;
    if (rank->exit || rank->away) ranks.ended.insert(rank->rank);
    if (rank->away) ranks.away.insert(rank->rank);
  }
  return ranks;
}

WallTime EndOf(const Job& job) { return job.end_time.value_or(job.state_time); }

JobEntry* JobRegistry::Find(const JobName& name) {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

const JobEntry* JobRegistry::Find(const JobName& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

StatusOr<JobEntry*> JobRegistry::Get(const JobName& name) {
  if (JobEntry* const entry = Find(name)) return entry;
  if (deleted_.contains(name)) {
    return WithReason(NotFound("job {} was deleted", name), "JOB_DELETED");
  }
  std::vector<std::string> names;
  for (const auto& [known, entry] : entries_) names.push_back(known);
  const std::string near = Nearest(name, names);
  return WithReason(
      near.empty()
          ? NotFound("there is no job {}", name)
          : NotFound("there is no job {}; did you mean {}?", name, near),
      "NO_SUCH_JOB");
}

JobEntry* JobRegistry::FindCurrent(const JobName& name, Generation generation) {
  JobEntry* const entry = Find(name);
  if (entry == nullptr || entry->job->generation != generation ||
      IsFinal(entry->job->state)) {
    return nullptr;
  }
  return entry;
}

const JobEntry* JobRegistry::FindUid(const std::string& uid) const {
  const auto it = uids_.find(uid);
  return it == uids_.end() ? nullptr : &entries_.at(it->second);
}

JobRegistry::Applied JobRegistry::Apply(std::shared_ptr<const Job> job,
                                        Time now) {
  const JobName& name = job->spec.name;
  JobEntry& entry = entries_.try_emplace(name, options_).first->second;
  Applied applied;
  applied.before = std::exchange(entry.job, job);
  const Job* const before = applied.before.get();
  applied.new_generation =
      before == nullptr || before->generation != job->generation;
  if (before == nullptr) entry.spec_bytes = SpecBytes(job->spec);
  // Within a generation it comes, goes, and changes with a recovery.
  if (!job->cluster || IsFinal(job->state) || applied.new_generation ||
      (before != nullptr && before->recovery != job->recovery)) {
    entry.cluster.reset();
  }
  entry.places = JobPlaces(*job);
  entry.pace.Reset(job->generation, entry.places.nodes());
  uids_[job->uid] = name;
  if (BeginsAnew(before, *job)) {
    entry.state_since = now.mono;
    if (before != nullptr) {
      LOG_INFO("job {} g{}: {} {}{}", name, job->generation, Name(job->state),
               Name(job->cause.reason),
               job->cause.message.empty() ? "" : ": " + job->cause.message);
    }
  }
  if (applied.new_generation) {
    entry.all_started_since.reset();
    entry.meter.Reset(job->generation);
    entry.stall.Reset(job->generation, job->spec.kind);
    entry.capture.Reset(job->generation);
    entry.idle.watch.Reset(job->generation);
    entry.noted.idle = false;
    entry.idle.end.reset();
    entry.awaited.room.reset();
  }
  // Its place before: the priority may be another now.
  if (before != nullptr) {
    applied.left_queue = queued_.erase(PlaceInQueue(*before)) > 0;
  }
  if (job->state == JobState::kQueued || job->state == JobState::kPlacing) {
    queued_.insert(PlaceInQueue(*job));
  } else {
    entry.waiting.reset();
  }
  if (IsFinal(job->state)) {
    live_.erase(name);
    ended_.insert({EndOf(*job), name});
  } else {
    live_.insert(name);
  }
  return applied;
}

void JobRegistry::Delete(const JobName& name) {
  const auto it = entries_.find(name);
  const std::shared_ptr<const Job> job = it->second.job;
  ended_.erase({EndOf(*job), name});
  uids_.erase(job->uid);
  entries_.erase(it);
  deleted_.insert(name);
}

bool JobRegistry::MayWait(const NodeName& node, const GangStatus& report) {
  JobEntry* const entry = FindCurrent(report.job, report.generation);
  return entry != nullptr && entry->job->uid == report.job_uid &&
         !entry->places.TasksOn(node).empty() &&
         !entry->pace.Take(*entry->job, node, report);
}

bool JobRegistry::IsLeftOver(const NodeName& node,
                             const GangStatus& gang) const {
  if (gang.phase == GangPhase::kStopped || gang.phase == GangPhase::kRefused) {
    return false;
  }
  const JobEntry* const entry = Find(gang.job);
  if (entry == nullptr || entry->job->uid != gang.job_uid) return true;
  const std::vector<Hold>& holds = entry->job->holds;
  const std::vector<size_t>& here = entry->places.HoldsOn(node);
  return std::none_of(here.begin(), here.end(), [&](size_t hold) {
    return holds[hold].generation == gang.generation;
  });
}

}  // namespace lockstep::server
