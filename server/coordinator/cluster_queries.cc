#include "server/coordinator/cluster_queries.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/core/elastic.h"
#include "server/core/recovery.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// Adds those of `wanted`, or all, that `counts` takes. Returns the first one
// of `wanted` that no task has.
std::optional<int32_t> AddRanks(
    const std::vector<TaskStatus>& tasks, const std::set<int32_t>& wanted,
    const std::function<bool(const RankStatus&)>& counts, FoundRanks* found) {
  std::set<int32_t> unknown = wanted;
  for (const TaskStatus& task : tasks) {
    for (const RankStatus& rank : task.ranks) {
      unknown.erase(rank.rank);
      // The others do not wait for one that is away.
      if (wanted.empty() ? rank.away : !wanted.contains(rank.rank)) continue;
      AddEnded(task.node, rank, found);
      if (counts(rank)) found->ranks[task.node].push_back(rank.rank);
    }
  }
  if (unknown.empty()) return std::nullopt;
  return *unknown.begin();
}

// Why evidence of the attempt was captured; kNone: it was not.
Reason KeptFor(const Job& job, const Attempt& attempt) {
  const Reason end = attempt.end_cause.reason;
  if (end == Reason::kStalled || end == Reason::kMaxRunningTime ||
      FailedByItsRanks(end)) {
    return end;
  }
  // Otherwise a stall is announced before evidence of it is captured.
  if (HangPolicyOf(job.spec) != HangPolicy::kWarn) return Reason::kNone;
  const bool stood_still =
      std::any_of(job.events.begin(), job.events.end(), [&](const Event& e) {
        return e.reason == Reason::kNoProgress &&
               e.generation == attempt.generation;
      });
  return stood_still ? Reason::kNoProgress : Reason::kNone;
}

// Those that failed by themselves.
std::vector<int32_t> FailedRanks(const Attempt& attempt) {
  std::vector<int32_t> failed;
  for (const TaskStatus& task : attempt.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (rank.exit && !rank.exit->ok() && !rank.exit->victim) {
        failed.push_back(rank.rank);
      }
    }
  }
  std::sort(failed.begin(), failed.end());
  return failed;
}

// The places of the queued jobs; the next one has 1.
std::map<JobName, int64_t> PositionsOf(const JobRegistry& jobs) {
  std::map<JobName, int64_t> positions;
  for (const QueuePlace& place : jobs.queued()) {
    const int64_t position = static_cast<int64_t>(positions.size()) + 1;
    positions[place.job] = position;
  }
  return positions;
}

}  // namespace

void ClusterQueries::AddExpectedStarts(
    const std::vector<JobSnapshot*>& jobs) const {
  std::shared_ptr<const StartForecast::Starts> starts;
  for (JobSnapshot* const job : jobs) {
    if (job->job->state != JobState::kQueued &&
        job->job->state != JobState::kPlacing) {
      continue;
    }
    if (starts == nullptr) starts = forecast_.Get(clock_.Now());
    const auto start = starts->find(job->job->spec.name);
    if (start != starts->end()) job->expected_start = start->second;
  }
}

StatusOr<JobSnapshot> ClusterQueries::GetJob(const JobName& name) const {
  const Time now = clock_.Now();
  JobSnapshot snapshot;
  {
    MutexLock lock(&mu_);
    LOCKSTEP_ASSIGN_OR_RETURN(const JobEntry* entry,
                              parts_.state->jobs.Get(name));
    snapshot = parts_.snapshots->SnapshotOf(*entry, now);
  }
  AddExpectedStarts({&snapshot});
  return snapshot;
}

std::string ClusterQueries::OwnerOf(const JobName& name) const {
  MutexLock lock(&mu_);
  const JobEntry* const entry = parts_.state->jobs.Find(name);
  return entry == nullptr ? std::string() : entry->job->owner;
}

int64_t ClusterQueries::QueuePosition(const JobName& name) const {
  MutexLock lock(&mu_);
  const JobEntry* const entry = parts_.state->jobs.Find(name);
  if (entry == nullptr) return 0;
  const std::set<QueuePlace>& queued = parts_.state->jobs.queued();
  const auto place = queued.find(PlaceInQueue(*entry->job));
  if (place == queued.end()) return 0;
  return 1 + std::distance(queued.begin(), place);
}

std::vector<JobSnapshot> ClusterQueries::ListJobs() const {
  const Time now = clock_.Now();
  std::vector<JobSnapshot> jobs;
  {
    MutexLock lock(&mu_);
    const JobRegistry& table = parts_.state->jobs;
    const auto positions = PositionsOf(table);
    jobs.reserve(table.entries().size());
    for (const auto& [name, entry] : table.entries()) {
      jobs.push_back(parts_.snapshots->SnapshotOf(entry, now));
      const auto position = positions.find(name);
      if (position != positions.end()) {
        jobs.back().queue_position = position->second;
      }
    }
  }
  std::vector<JobSnapshot*> all;
  for (JobSnapshot& job : jobs) all.push_back(&job);
  AddExpectedStarts(all);
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const JobSnapshot& a, const JobSnapshot& b) {
                     return a.job->create_time > b.job->create_time;
                   });
  return jobs;
}

std::vector<NodeSnapshot> ClusterQueries::ListNodes() const {
  MutexLock lock(&mu_);
  std::vector<NodeSnapshot> nodes;
  for (const auto& [name, member] : parts_.state->members.members()) {
    nodes.push_back(parts_.snapshots->SnapshotOf(member));
  }
  return nodes;
}

StatusOr<NodeSnapshot> ClusterQueries::GetNode(const NodeName& name) const {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member,
                            parts_.state->GetMember(name));
  return parts_.snapshots->SnapshotOf(*member);
}

CoordinatorStats ClusterQueries::Stats() const {
  MutexLock lock(&mu_);
  const Time now = clock_.Now();
  CoordinatorStats stats;
  for (const JobState state : kAllJobStates) stats.jobs[state] = 0;
  for (const NodeState state : kAllNodeStates) stats.nodes[state] = 0;
  for (const auto& [name, entry] : parts_.state->jobs.entries()) {
    ++stats.jobs[entry.job->state];
    if (entry.job->state == JobState::kQueued) {
      stats.oldest_queued_seconds =
          std::max(stats.oldest_queued_seconds,
                   ToSeconds(now.wall - entry.job->create_time));
    }
  }
  for (const auto& [name, member] : parts_.state->members.members()) {
    const NodeSnapshot node = parts_.snapshots->SnapshotOf(member);
    ++stats.nodes[node.member.state];
    stats.capacity.cpus += member.info.capacity.cpus;
    stats.capacity.memory_bytes += member.info.capacity.memory_bytes;
    stats.capacity.gpus += static_cast<int32_t>(member.info.gpus.size());
    stats.allocated.cpus += node.allocated.cpus;
    stats.allocated.memory_bytes += node.allocated.memory_bytes;
    stats.allocated.gpus += node.allocated.gpus;
  }
  stats.commits = parts_.writer->stats();
  return stats;
}

CoordinatorView ClusterQueries::View(Duration linger) const {
  MutexLock lock(&mu_);
  CoordinatorView view;
  view.time = clock_.Now();
  view.store_healthy = parts_.writer->healthy();
  view.prices = parts_.billing->prices();
  view.epoch = parts_.identity->epoch;
  view.refused_by = parts_.guard->refused_by();
  for (const JobState state : kAllJobStates) view.jobs_by_state[state] = 0;
  const auto positions = PositionsOf(parts_.state->jobs);
  for (const auto& [name, entry] : parts_.state->jobs.entries()) {
    const Job& job = *entry.job;
    ++view.jobs_by_state[job.state];
    if (IsFinal(job.state) &&
        (!job.end_time || view.time.wall - *job.end_time > linger)) {
      continue;
    }
    view.jobs.push_back({parts_.snapshots->SnapshotOf(entry, view.time),
                         entry.meter.last_step_time()});
    const auto position = positions.find(name);
    if (position != positions.end()) {
      view.jobs.back().snapshot.queue_position = position->second;
    }
  }
  for (const auto& [name, member] : parts_.state->members.members()) {
    view.nodes.push_back(parts_.snapshots->SnapshotOf(member));
  }
  return view;
}

LogOwner ClusterQueries::FindLogOwner(const std::string& uid) const {
  MutexLock lock(&mu_);
  LogOwner owner;
  const JobEntry* const entry = parts_.state->jobs.FindUid(uid);
  if (entry == nullptr) return owner;
  owner.known = true;
  if (IsFinal(entry->job->state)) owner.end_time = EndOf(*entry->job);
  return owner;
}

StatusOr<ClusterQueries::FoundWork> ClusterQueries::FindWork(
    const JobName& name, int32_t rank, const JobCheck& may) const {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const JobEntry* entry,
                            parts_.state->jobs.Get(name));
  LOCKSTEP_RETURN_IF_ERROR(may(*entry->job));
  LOCKSTEP_ASSIGN_OR_RETURN(WorkSite site, WorkSiteOf(*entry->job, rank));
  return FoundWork{entry->job->uid, std::move(site)};
}

StatusOr<FoundRanks> ClusterQueries::FindRunning(const JobName& name,
                                                 const std::set<int32_t>& ranks,
                                                 const JobCheck& may) const {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const JobEntry* entry,
                            parts_.state->jobs.Get(name));
  const Job& job = *entry->job;
  LOCKSTEP_RETURN_IF_ERROR(may(job));
  FoundRanks found;
  found.job = name;
  found.job_uid = job.uid;
  found.generation = job.generation;
  found.note = IsRecovering(job) ? job.cause.message : SizeText(job);
  const auto unknown = AddRanks(
      job.tasks, ranks,
      [](const RankStatus& rank) {
        return rank.state == RankState::kStarted ||
               rank.state == RankState::kJoined;
      },
      &found);
  if (unknown && !job.tasks.empty()) {
    return NotFound("job {} has no rank {}", name, *unknown);
  }
  if (found.ranks.empty()) {
    return FailedPrecondition(
        "no rank {}of job {} runs now: it is {}; see `lockstep jobs describe "
        "{}`",
        ranks.empty() ? "" : "of these ", name, Name(job.state), name);
  }
  return found;
}

StatusOr<FoundRanks> ClusterQueries::FindKept(const JobName& name,
                                              const std::set<int32_t>& ranks,
                                              int32_t ordinal,
                                              const JobCheck& may) const {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const JobEntry* entry,
                            parts_.state->jobs.Get(name));
  const Job& job = *entry->job;
  LOCKSTEP_RETURN_IF_ERROR(may(job));
  const auto attempt = std::find_if(
      job.attempts.rbegin(), job.attempts.rend(), [&](const Attempt& ended) {
        return (ordinal == 0 || ended.ordinal == ordinal) &&
               KeptFor(job, ended) != Reason::kNone;
      });
  if (attempt == job.attempts.rend()) {
    return FailedPrecondition(
        "{} of job {} failed by its ranks, stood still or reached a limit",
        ordinal == 0 ? std::string("no ended attempt")
                     : fmt::format("no ended attempt {}", ordinal),
        name);
  }
  FoundRanks found;
  found.job = name;
  found.job_uid = job.uid;
  found.generation = attempt->generation;
  found.attempt = attempt->ordinal;
  found.kept_for = KeptFor(job, *attempt);
  if (FailedByItsRanks(found.kept_for)) {
    found.failure = attempt->end_cause.message;
    found.failed = FailedRanks(*attempt);
  }
  if (const auto unknown = AddRanks(
          attempt->tasks, ranks, [](const RankStatus&) { return true; },
          &found)) {
    return NotFound("job {} had no rank {}", name, *unknown);
  }
  return found;
}

std::set<std::string> ClusterQueries::NeededPackages() const {
  MutexLock lock(&mu_);
  std::set<std::string> digests;
  for (const JobName& name : parts_.state->jobs.live()) {
    for (const Package& package :
         parts_.state->jobs.At(name).job->spec.packages) {
      digests.insert(package.digest);
    }
  }
  return digests;
}

Prices ClusterQueries::prices() const {
  MutexLock lock(&mu_);
  return parts_.billing->prices();
}

int64_t ClusterQueries::version() const {
  MutexLock lock(&mu_);
  return parts_.writer->version();
}

bool ClusterQueries::store_healthy() const {
  MutexLock lock(&mu_);
  return parts_.writer->healthy();
}

Status ClusterQueries::taken_over() const {
  MutexLock lock(&mu_);
  return parts_.writer->taken_over();
}

}  // namespace lockstep::server
