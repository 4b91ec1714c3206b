#include "server/core/lifecycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/verdict.h"

namespace lockstep {
namespace {

constexpr size_t kMaxAttempts = 20;

const GangStatus* GangOf(const JobView& view, const NodeName& node,
                         Generation generation) {
  const auto it = view.nodes.find(node);
  if (it == view.nodes.end()) return nullptr;
  const auto gang = it->second.gangs.find(generation);
  return gang == it->second.gangs.end() ? nullptr : &gang->second;
}

bool IsLost(const JobView& view, const NodeName& node) {
  const auto it = view.nodes.find(node);
  return it != view.nodes.end() && it->second.state == NodeState::kLost;
}

std::string AddressOf(const JobView& view, const NodeName& node) {
  const auto it = view.nodes.find(node);
  return it == view.nodes.end() ? std::string() : it->second.address;
}

// The node is there, has told everything it has, and this is not among it.
bool SaysNothing(const JobView& view, const NodeName& node,
                 Generation generation) {
  const auto it = view.nodes.find(node);
  return it != view.nodes.end() && it->second.reported &&
         it->second.state == NodeState::kReady &&
         !it->second.gangs.contains(generation);
}

bool HoldsAnything(const Job& job, Generation generation) {
  return std::any_of(job.holds.begin(), job.holds.end(), [&](const Hold& hold) {
    return hold.generation <= generation;
  });
}

// ---- Taking in what nodes report -------------------------------------------

void TakeRank(RankStatus* known, const RankStatus& said) {
  if (said.state > known->state) known->state = said.state;
  if (said.pid != 0) known->pid = said.pid;
  if (said.exit && !known->exit) {
    known->exit = said.exit;
    known->state = RankState::kExited;
    // Counters are final now: this is where they become durable.
    known->progress = said.progress;
    known->usage = said.usage;
  }
}

void TakeReport(Job* job, const GangStatus& gang, const NodeName& node,
                Time now) {
  for (TaskStatus& task : job->tasks) {
    if (task.node != node) continue;
    for (RankStatus& rank : task.ranks) {
      for (const RankStatus& said : gang.ranks) {
        if (said.rank == rank.rank) TakeRank(&rank, said);
      }
    }
  }
  if (gang.checkpoint &&
      (!job->last_checkpoint ||
       gang.checkpoint->generation > job->last_checkpoint->generation ||
       gang.checkpoint->step > job->last_checkpoint->step)) {
    job->last_checkpoint = gang.checkpoint;
    if (job->last_checkpoint->time == WallTime{}) {
      job->last_checkpoint->time = now.wall;
    }
    job->committed_step =
        std::max(job->committed_step.value_or(-1), gang.checkpoint->step);
  }
  for (const auto& [name, path] : gang.artifacts) job->artifacts[name] = path;
  if (gang.resumed_step && !job->lineage.empty() &&
      job->lineage.back().generation == gang.generation &&
      job->lineage.back().start_step != *gang.resumed_step) {
    job->lineage.back().start_step = *gang.resumed_step;
  }
  std::erase_if(job->directives, [&](const Directive& directive) {
    return directive.id <= gang.directive_done;
  });
  uint32_t& seen = job->event_numbers[node];
  for (const RankEvent& event : gang.events) {
    if (event.number <= seen) continue;
    seen = event.number;
    AddEvent(job, event.reason,
             fmt::format("{}: {}", RankLabel(*job, event.rank), event.message),
             now);
  }
}

void TakeReports(Job* job, const JobView& view, Time now) {
  for (const NodeName& node : NodesOf(*job)) {
    if (const GangStatus* gang = GangOf(view, node, job->generation)) {
      TakeReport(job, *gang, node, now);
    }
  }
  // A node whose part is over holds nothing any more. One that never heard of
  // it says so too: STOP of something unknown is acknowledged.
  const std::vector<Hold> holds = job->holds;
  for (const Hold& hold : holds) {
    const GangStatus* gang = GangOf(view, hold.node, hold.generation);
    const bool over = gang != nullptr && (gang->phase == GangPhase::kStopped ||
                                          gang->phase == GangPhase::kRefused);
    if (over || IsLost(view, hold.node)) {
      if (hold.generation < job->generation || job->failing || job->outcome) {
        ReleaseHolds(job, hold.node, hold.generation, now.wall);
      }
    }
  }
}

// ---- Ends ------------------------------------------------------------------

void Finish(Job* job, JobState outcome, Cause cause, int32_t exit_code,
            Time now) {
  job->outcome = outcome;
  job->exit_code = exit_code;
  job->failing.reset();
  EnterState(job, JobState::kFinishing, std::move(cause), now);
}

// Stops the generation; what comes next is decided when it is gone.
void Fail(Job* job, Cause cause, Time now) {
  AddEvent(job, cause.reason, cause.message + "; stopping the generation", now);
  job->cause = {Reason::kStoppingRanks,
                cause.message + "; stopping the other ranks"};
  job->failing = std::move(cause);
}

// Of this generation, by what was stored or is only known in memory.
int64_t HighestCommitted(const Job& job, const JobView& view) {
  int64_t highest = -1;
  for (const RankStatus* rank : RanksOf(job)) {
    highest = std::max(highest, rank->progress.committed_step);
  }
  for (const NodeName& node : NodesOf(job)) {
    const GangStatus* gang = GangOf(view, node, job.generation);
    if (gang == nullptr) continue;
    for (const RankStatus& rank : gang->ranks) {
      highest = std::max(highest, rank.progress.committed_step);
    }
  }
  return highest;
}

void CloseAttempt(Job* job, const JobView& view, const Cause& cause, Time now) {
  if (job->attempt > 0 &&
      (job->attempts.empty() ||
       job->attempts.back().generation != job->generation)) {
    Attempt attempt;
    attempt.ordinal = job->attempt;
    attempt.generation = job->generation;
    attempt.start_time =
        job->holds.empty() ? job->state_time : job->holds.front().since;
    attempt.end_time = now.wall;
    attempt.end_cause = cause;
    attempt.tasks = job->tasks;
    if (!job->lineage.empty() && job->lineage.back().start_step > 0) {
      attempt.resumed_step = job->lineage.back().start_step;
    }
    for (const RankStatus* rank : RanksOf(*job)) {
      if (rank->exit) job->ended_ranks.push_back(*rank);
    }
    job->attempts.push_back(std::move(attempt));
    if (job->attempts.size() > kMaxAttempts) {
      job->attempts.erase(job->attempts.begin());
    }
  }
  const int64_t highest = HighestCommitted(*job, view);
  if (highest > job->committed_step.value_or(0)) job->committed_step = highest;
}

// ---- New generations -------------------------------------------------------

void StartGeneration(Job* job, Time now) {
  ++job->generation;
  ++job->attempt;
  job->cluster.reset();
  job->job_key.clear();
  job->failing.reset();
  job->committed_before = job->committed_step.value_or(0);
  job->event_numbers.clear();
  // Ids count from 1 in each generation.
  job->next_directive = 1;
  for (Directive& directive : job->directives) {
    directive.id = job->next_directive++;
  }
  const int64_t start = job->last_checkpoint ? job->last_checkpoint->step : 0;
  job->lineage.push_back({job->generation, start});
  for (TaskStatus& task : job->tasks) {
    task.address.clear();
    for (RankStatus& rank : task.ranks) {
      RankStatus fresh;
      fresh.rank = rank.rank;
      fresh.local_rank = rank.local_rank;
      rank = fresh;
    }
  }
  for (const NodeName& node : NodesOf(*job)) {
    Hold hold;
    hold.node = node;
    hold.generation = job->generation;
    hold.since = now.wall;
    for (const TaskStatus& task : job->tasks) {
      if (task.node != node) continue;
      for (const RoleSpec& role : job->spec.roles) {
        if (role.type != task.type) continue;
        hold.resources.cpus += role.resources.cpus;
        hold.resources.memory_bytes += role.resources.memory_bytes;
        hold.resources.gpus += role.resources.gpus;
      }
      hold.gpus.insert(hold.gpus.end(), task.gpus.begin(), task.gpus.end());
    }
    job->holds.push_back(std::move(hold));
  }
  EnterState(job, JobState::kPreparing,
             {Reason::kPreparingNodes,
              fmt::format("generation {} on {}", job->generation,
                          fmt::join(NodesOf(*job), ", "))},
             now);
}

// Everything of the failed generation is gone: try again or give up.
void DecideAfterFailure(Job* job, const JobView& view, Time now) {
  std::optional<Failure> failure = FirstFailure(*job);
  if (!failure || job->failing->reason == Reason::kNodeLost) {
    failure = FailureOf(*job->failing);
  }
  const bool was_running = job->state == JobState::kRunning;
  const bool progress =
      was_running &&
      (job->spec.kind == JobKind::kNative
           ? HighestCommitted(*job, view) > job->committed_before
           : now.wall - job->state_time >= std::chrono::minutes(10));
  const RestartPlan plan =
      PlanRestart(*job, *failure, progress, was_running, now);
  CloseAttempt(job, view, failure->cause, now);
  job->failures_without_progress = plan.failures_without_progress;
  if (progress || !job->first_failure) {
    job->first_failure = failure->cause;
    job->first_failure_code = failure->exit_code;
  }
  if (!plan.restart) {
    Finish(job, JobState::kFailed, plan.cause, plan.exit_code, now);
    return;
  }
  if (failure->free_restart) job->free_restarts.push_back(now.wall);
  ++job->restarts;
  job->not_before = now.wall + plan.backoff;
  AddEvent(job, failure->cause.reason,
           fmt::format("{}; trying again ({} of {} failures without progress)",
                       failure->cause.message, plan.failures_without_progress,
                       job->spec.restart_budget),
           now);
  // A job that ran goes on at once where it is, the first time: backing off
  // would only idle its hosts.
  const std::set<NodeName> nodes = NodesOf(*job);
  const bool in_place =
      was_running && plan.failures_without_progress <= 1 &&
      std::all_of(nodes.begin(), nodes.end(), [&](const NodeName& node) {
        const auto it = view.nodes.find(node);
        return it != view.nodes.end() && it->second.state == NodeState::kReady;
      });
  if (in_place) {
    job->not_before.reset();
    StartGeneration(job, now);
    return;
  }
  job->failing.reset();
  EnterState(job, JobState::kPlacing,
             {Reason::kBackoff,
              fmt::format("next try in {}", FormatDuration(plan.backoff))},
             now);
}

// ---- States ----------------------------------------------------------------

bool AnyRankFailed(const Job& job) { return FirstFailure(job).has_value(); }

bool AllRanks(const Job& job, RankState at_least) {
  const auto ranks = RanksOf(job);
  return std::all_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
    return rank->state >= at_least;
  });
}

// "rank 1 (worker 0 on b)", ... of those that are not yet `at_least`.
std::string Missing(const Job& job, RankState at_least) {
  std::vector<std::string> names;
  for (const RankStatus* rank : RanksOf(job)) {
    if (rank->state < at_least) names.push_back(RankLabel(job, rank->rank));
  }
  if (names.size() > 5) {
    names.resize(5);
    names.push_back("...");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// A node that the generation runs on is gone, or came back without it.
bool CheckNodes(Job* job, const JobView& view, bool launched, Time now) {
  for (const NodeName& node : NodesOf(*job)) {
    if (IsLost(view, node)) {
      Fail(job, {Reason::kNodeLost, fmt::format("node {} is lost", node)}, now);
      return true;
    }
    if (launched && SaysNothing(view, node, job->generation)) {
      Fail(job,
           {Reason::kNodeLost,
            fmt::format("node {} came back without the job's ranks", node)},
           now);
      return true;
    }
    const GangStatus* gang = GangOf(view, node, job->generation);
    if (gang != nullptr && gang->phase == GangPhase::kRefused) {
      Cause cause = gang->refusal;
      cause.message = fmt::format("node {}: {}", node, cause.message);
      Fail(job, std::move(cause), now);
      return true;
    }
  }
  return false;
}

void MakeClusterSpec(Job* job, const JobView& view) {
  ClusterSpec spec;
  spec.job = job->spec.name;
  spec.job_uid = job->uid;
  spec.generation = job->generation;
  std::map<NodeName, size_t> used;
  for (TaskStatus& task : job->tasks) {
    const GangStatus* gang = GangOf(view, task.node, job->generation);
    const size_t at = used[task.node]++;
    const int32_t port =
        gang != nullptr && at < gang->ports.size() ? gang->ports[at] : 0;
    task.address = fmt::format("{}:{}", AddressOf(view, task.node), port);
    TaskSpec entry{task.type, task.index, task.node, task.address, {}};
    for (const RankStatus& rank : task.ranks) {
      RankSpec r;
      r.rank = rank.rank;
      r.local_rank = rank.local_rank;
      const size_t per_rank = task.gpus.size() / task.ranks.size();
      for (size_t i = 0; i < per_rank; ++i) {
        r.gpus.push_back(
            task.gpus[static_cast<size_t>(rank.local_rank) * per_rank + i]);
      }
      entry.ranks.push_back(std::move(r));
    }
    if (task.type == TaskType::kChief || task.type == TaskType::kWorker) {
      spec.world_size += static_cast<int32_t>(task.ranks.size());
    }
    spec.tasks.push_back(std::move(entry));
  }
  const TaskStatus& first = job->tasks.front();
  spec.master_address = first.address.substr(0, first.address.rfind(':'));
  if (const GangStatus* gang = GangOf(view, first.node, job->generation)) {
    spec.master_port = gang->master_port;
  }
  job->cluster = std::move(spec);
  job->job_key = view.fresh_key;
}

void DecidePreparing(Job* job, const JobView& view,
                     const LifecycleTimeouts& timeouts, Time now) {
  const bool launched = job->cluster.has_value();
  if (CheckNodes(job, view, launched, now)) return;
  if (!launched) {
    std::vector<NodeName> missing;
    for (const NodeName& node : NodesOf(*job)) {
      const GangStatus* gang = GangOf(view, node, job->generation);
      if (gang == nullptr || gang->phase < GangPhase::kPrepared) {
        missing.push_back(node);
      }
    }
    if (missing.empty() && !HoldsAnything(*job, job->generation - 1)) {
      MakeClusterSpec(job, view);
      if (job->spec.kind == JobKind::kNative) {
        EnterState(job, JobState::kForming,
                   {Reason::kStartingRanks,
                    fmt::format("starting {} ranks", RanksOf(*job).size())},
                   now);
      } else {
        job->cause = {Reason::kStartingRanks,
                      fmt::format("starting {} ranks", RanksOf(*job).size())};
      }
    } else if (now.mono - view.state_since > timeouts.prepare) {
      Fail(job,
           {Reason::kPrepareTimeout,
            fmt::format("not prepared after {}: {}",
                        FormatDuration(timeouts.prepare),
                        fmt::join(missing, ", "))},
           now);
    }
    return;
  }
  // A program job that is being started.
  if (AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
  } else if (AllRanks(*job, RankState::kStarted)) {
    job->failed_formings = 0;
    EnterState(job, JobState::kRunning, {Reason::kRunning, ""}, now);
  } else if (now.mono - view.state_since > timeouts.prepare + timeouts.launch) {
    Fail(
        job,
        {Reason::kFormTimeout, fmt::format("not started after {}: {}",
                                           FormatDuration(timeouts.launch),
                                           Missing(*job, RankState::kStarted))},
        now);
  }
}

void DecideForming(Job* job, const JobView& view,
                   const LifecycleTimeouts& timeouts, Time now) {
  if (CheckNodes(job, view, true, now)) return;
  if (AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
    return;
  }
  if (AllRanks(*job, RankState::kJoined)) {
    job->failed_formings = 0;
    EnterState(job, JobState::kRunning, {Reason::kRunning, ""}, now);
    return;
  }
  const bool started = AllRanks(*job, RankState::kStarted);
  const bool late = started
                        ? view.all_started_since &&
                              now.mono - *view.all_started_since > timeouts.join
                        : now.mono - view.state_since > timeouts.launch;
  if (!late) return;
  ++job->failed_formings;
  Fail(job,
       {Reason::kFormTimeout,
        fmt::format(
            "{} after {}: {}", started ? "not joined" : "not started",
            FormatDuration(started ? timeouts.join : timeouts.launch),
            Missing(*job, started ? RankState::kJoined : RankState::kStarted))},
       now);
}

void DecideRunning(Job* job, const JobView& view, Time now) {
  const RankStatus& deciding = DecidingRank(*job);
  if (deciding.exit && deciding.exit->ok()) {
    Finish(job, JobState::kSucceeded,
           {Reason::kCompleted, RankLabel(*job, deciding.rank) + " is done"}, 0,
           now);
    return;
  }
  if (AnyRankFailed(*job)) {
    Fail(job, FirstFailure(*job)->cause, now);
    return;
  }
  if (CheckNodes(job, view, true, now)) return;
  if (job->spec.max_running_time &&
      PhaseDuration(*job, JobState::kRunning, now.wall) >
          *job->spec.max_running_time) {
    Finish(job, JobState::kCancelled,
           {Reason::kMaxRunningTime,
            fmt::format("ran for longer than maxRunningTime ({})",
                        FormatDuration(*job->spec.max_running_time))},
           1, now);
  }
}

void DecideFinishing(Job* job, const JobView& view, Time now) {
  if (!job->holds.empty()) return;
  CloseAttempt(job, view, job->cause, now);
  EnterState(job, *job->outcome, job->cause, now);
}

void DecideWaiting(Job* job, Time now) {
  const bool never_ran = !job->start_time.has_value();
  if (job->cancel_requested ||
      (never_ran && job->spec.max_wait_time &&
       now.wall - job->create_time > *job->spec.max_wait_time)) {
    const Cause cause =
        job->cancel_requested
            ? job->cause
            : Cause{Reason::kMaxWaitTime,
                    fmt::format("waited for longer than maxWaitTime ({})",
                                FormatDuration(*job->spec.max_wait_time))};
    job->exit_code = 1;
    job->outcome = JobState::kCancelled;
    if (job->holds.empty()) {
      EnterState(job, JobState::kCancelled, cause, now);
    } else {
      Finish(job, JobState::kCancelled, cause, 1, now);
    }
  }
}

}  // namespace

Job Decide(const Job& before, const JobView& view,
           const LifecycleTimeouts& timeouts, Time now) {
  if (IsFinal(before.state)) return before;
  Job job = before;
  TakeReports(&job, view, now);
  if (job.cancel_requested && !job.outcome && IsActive(job.state)) {
    Finish(&job, JobState::kCancelled, job.cause, 1, now);
    return job;
  }
  if (job.failing) {
    if (!HoldsAnything(job, job.generation)) {
      DecideAfterFailure(&job, view, now);
    }
    return job;
  }
  switch (job.state) {
    case JobState::kQueued:
    case JobState::kPlacing:
      DecideWaiting(&job, now);
      break;
    case JobState::kPreparing:
      DecidePreparing(&job, view, timeouts, now);
      break;
    case JobState::kForming:
      DecideForming(&job, view, timeouts, now);
      break;
    case JobState::kRunning:
      DecideRunning(&job, view, now);
      break;
    case JobState::kFinishing:
      DecideFinishing(&job, view, now);
      break;
    default:
      break;
  }
  return job;
}

Job Place(const Job& before, const std::vector<TaskPlacement>& placement,
          Time now) {
  Job job = before;
  job.not_before.reset();
  if (job.state == JobState::kQueued) {
    EnterState(&job, JobState::kPlacing, {Reason::kNone, ""}, now);
  }
  job.tasks.clear();
  int32_t rank = 0;
  for (const TaskPlacement& place : placement) {
    TaskStatus task;
    task.type = place.type;
    task.index = place.index;
    task.node = place.node;
    task.gpus = place.gpus;
    for (const RoleSpec& role : job.spec.roles) {
      if (role.type != place.type) continue;
      for (int32_t local = 0; local < role.ranks_per_task; ++local) {
        RankStatus status;
        status.rank = rank++;
        status.local_rank = local;
        task.ranks.push_back(std::move(status));
      }
    }
    job.tasks.push_back(std::move(task));
  }
  StartGeneration(&job, now);
  return job;
}

Job NewJob(JobSpec spec, std::string uid, std::string owner, Time now) {
  Job job;
  job.spec = std::move(spec);
  job.uid = std::move(uid);
  job.owner = std::move(owner);
  job.create_time = now.wall;
  job.state_time = now.wall;
  job.cause = {Reason::kNone, "just submitted"};
  AddEvent(&job, Reason::kNone, "submitted by " + job.owner, now);
  return job;
}

Job Cancel(const Job& before, const std::string& who, Time now) {
  if (IsFinal(before.state) || before.cancel_requested ||
      before.state == JobState::kFinishing) {
    return before;
  }
  Job job = before;
  job.cancel_requested = true;
  job.cause = {Reason::kCancelledByUser, "cancelled by " + who};
  AddEvent(&job, Reason::kCancelledByUser, job.cause.message, now);
  return job;
}

StatusOr<Job> AddCheckpointDirective(const Job& before, Time now) {
  const std::string& name = before.spec.name;
  if (before.spec.kind != JobKind::kNative) {
    return WithReason(
        FailedPrecondition("job {} is a program: only it can save; native jobs "
                           "can be told to",
                           name),
        "NOT_NATIVE");
  }
  if (before.spec.output_directory.empty()) {
    return WithReason(
        FailedPrecondition("job {} has no output directory to save in", name),
        "NO_OUTPUT_DIRECTORY");
  }
  if (before.state != JobState::kRunning || before.failing) {
    return WithReason(FailedPrecondition(
                          "job {} is {}, not RUNNING: there is nothing to save",
                          name, Name(before.state)),
                      "NOT_RUNNING");
  }
  Job job = before;
  job.directives.push_back({job.next_directive++, DirectiveKind::kCheckpoint});
  AddEvent(&job, Reason::kNone, "checkpoint requested", now);
  return job;
}

}  // namespace lockstep
