#include "server/coordinator/reconciler.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "server/core/replacing.h"
#include "server/core/restart.h"
#include "server/core/spares.h"

namespace lockstep::server {
namespace {

// A decision may lead to the next at once (QUEUED to PREPARING, FINISHING to
// SUCCEEDED); more rounds than states are never needed.
constexpr int kMaxRounds = 12;
// A job whose ranks stood still is said to do so again after this time.
constexpr Duration kStallNoteInterval = std::chrono::minutes(1);
// The verdict on evidence that is on disk takes a fraction of it.
constexpr Duration kVerdictTime = std::chrono::seconds(3);
// A cluster of this many nodes is large.
constexpr size_t kManyNodes = 64;

// Why evidence of the job's ranks is wanted now; kNone: it is not.
Reason ReasonToCapture(const JobEntry& entry, const JobView& view, Time now) {
  if (entry.job->state != JobState::kRunning) return Reason::kNone;
  if (view.stall) return Reason::kStalled;
  if (IsOverRunningTime(*entry.job, now)) return Reason::kMaxRunningTime;
  const bool warns = HangPolicyOf(entry.job->spec) == HangPolicy::kWarn;
  return warns && entry.noted.stall ? Reason::kNoProgress : Reason::kNone;
}

FoundRanks RanksOfGeneration(const Job& job, Reason kept_for) {
  FoundRanks found;
  found.job = job.spec.name;
  found.job_uid = job.uid;
  found.generation = job.generation;
  found.kept_for = kept_for;
  for (const TaskStatus& task : job.tasks) {
    for (const RankStatus& rank : task.ranks) {
      // The others do not wait for one that is away.
      if (rank.away) continue;
      AddEnded(task.node, rank, &found);
      if (!rank.exit) found.ranks[task.node].push_back(rank.rank);
    }
  }
  return found;
}

}  // namespace

Reconciler::Reconciler(const Parts& parts)
    : parts_(parts),
      views_({.options = parts.options,
              .state = parts.state,
              .detector = parts.detector,
              .faults = parts.faults,
              .guard = parts.guard}),
      sender_({.graces = &parts.options->graces,
               .identity = parts.identity,
               .writer = parts.writer,
               .guard = parts.guard,
               .views = &views_,
               .state = parts.state}) {}

void Reconciler::NoteStarted(JobEntry* entry, Time now) const {
  if (entry->all_started_since) return;
  const Job& job = *entry->job;
  size_t started = 0;
  for (const NodeName& name : NodesOf(job)) {
    const NodeEntry* const node = parts_.state->nodes.Find(name);
    if (node == nullptr) continue;
    const auto gang = node->gangs.find({job.spec.name, job.generation});
    if (gang == node->gangs.end()) continue;
    for (const RankStatus& rank : gang->second.ranks) {
      if (rank.state >= RankState::kStarted) ++started;
    }
  }
  if (started > 0 && started == RanksOf(job).size()) {
    entry->all_started_since = now.mono;
  }
}

void Reconciler::NoteStall(JobEntry* entry, Job* job, Time now) {
  const std::optional<Stall> stall = entry->StalledRank(now.mono);
  if (stall.has_value() == entry->noted.stall) return;
  if (stall) {
    // One that halts again and again would fill the history with it.
    if (entry->noted.stalled_since != MonoTime{} &&
        now.mono - entry->noted.stalled_since < kStallNoteInterval) {
      return;
    }
    entry->noted.stalled_since = now.mono - stall->still;
    entry->stall.RecordAnnounced(*stall);
    entry->noted.stall_verdict.clear();
    AddEvent(job, Reason::kNoProgress, Describe(*job, *stall), now);
  } else if (job->state == JobState::kRunning && !job->failing &&
             !IsRecovering(*job)) {
    AddEvent(job, Reason::kNoProgress,
             fmt::format("goes on after {}",
                         FormatDuration(now.mono - entry->noted.stalled_since)),
             now);
  }
  entry->noted.stall = stall.has_value();
}

void Reconciler::NoteSilence(JobEntry* entry, Job* job, Time now) const {
  const std::optional<SilentNodes::Word> word =
      parts_.detector->silent().WordOf(*job);
  std::optional<Outlook::Kind> kind;
  if (word) kind = word->kind;
  // Its reasons may change each few seconds; whoever asks is told the last.
  if (kind == entry->noted.silence) return;
  entry->noted.silence = kind;
  if (job->failing || job->outcome) return;
  if (word) {
    AddEventOnce(job, Reason::kNodeUnknown, word->text, now);
  } else if (job->state == JobState::kRunning && !IsRecovering(*job) &&
             job->recovery == entry->job->recovery) {
    AddEvent(job, Reason::kNodeUnknown, "its nodes are back, and it goes on",
             now);
  }
}

void Reconciler::NoteIdle(JobEntry* entry, Job* job, Time now) const {
  if (job->state != JobState::kRunning || job->failing) return;
  const IdlePolicy policy = IdlePolicyOf(job->spec, parts_.options->idle);
  const StallWatch::Ranks ranks = entry->Ranks();
  const auto since =
      entry->idle.watch.IdleSince(ranks.count, ranks.ended, now.mono);
  const Duration idle = since ? now.mono - *since : Duration{};
  const bool over = since && policy.stop && idle >= *policy.stop;
  const bool told = over || (since && policy.notice && idle >= *policy.notice);
  if (told && !entry->noted.idle) {
    AddEvent(job, Reason::kIdle,
             Describe(job->spec, policy, idle, parts_.billing->prices()), now);
    entry->noted.idle = true;
  } else if (!since && entry->noted.idle && !entry->idle.end) {
    AddEvent(job, Reason::kIdle, "a rank works again", now);
    entry->noted.idle = false;
  }
  if (over && !entry->idle.end) {
    entry->idle.end = {
        Reason::kIdle,
        fmt::format("no rank has worked for {}, and the limit is "
                    "{} (--idle-stop)",
                    FormatDuration(idle), FormatDuration(*policy.stop))};
    entry->idle.end_since = now.mono;
  }
}

void Reconciler::NoteBadGpus(Job* job, const JobView& view, Time now) const {
  if (!IsActive(job->state)) return;
  for (const TaskStatus& task : job->tasks) {
    if (task.gpus.empty()) continue;
    const auto node = view.nodes.find(task.node);
    if (node == view.nodes.end() || node->second.bad_gpus.empty()) continue;
    const Member* const member = parts_.state->members.Find(task.node);
    if (member == nullptr) continue;
    for (const Gpu& gpu : member->info.gpus) {
      const auto& used = task.gpus;
      const auto& bad = node->second.bad_gpus;
      if (std::count(used.begin(), used.end(), gpu.index) == 0 ||
          std::count(bad.begin(), bad.end(), gpu.index) == 0) {
        continue;
      }
      AddEventOnce(job, Reason::kNodeGpuError,
                   fmt::format("{} uses {} of node {}: {}",
                               TaskName(task.type, task.index), GpuLabel(gpu),
                               task.node, member->GpuTrouble(gpu)),
                   now);
    }
  }
}

void Reconciler::CaptureEvidence(JobEntry* entry, JobView* view,
                                 Time now) const {
  view->stall = parts_.faults->StallOf(*entry, *view, now);
  const Job& job = *entry->job;
  if (job.failing) return;
  const Reason reason = ReasonToCapture(*entry, *view, now);
  if (reason == Reason::kNone) {
    entry->capture.Drop();
    return;
  }
  if (entry->capture.Ask(reason, job, *view, now.mono)) {
    parts_.state->agenda.nodes.merge(NodesOf(job));
    entry->noted.stall_causes.reset();
    entry->noted.captured.reset();
  }
  const bool over = entry->capture.IsOver(job, *view, now.mono);
  if (over && entry->capture.TakeEnd() && parts_.options->on_captured &&
      reason != Reason::kMaxRunningTime) {
    entry->noted.captured = now.mono;
    parts_.options->on_captured(RanksOfGeneration(job, reason));
  }
  // Signs of progress alone do not tell which rank of a program to replace.
  const bool judged = entry->noted.stall_causes || !entry->noted.captured ||
                      now.mono - *entry->noted.captured >= kVerdictTime ||
                      job.spec.kind == JobKind::kNative ||
                      !AllAreRecoverable(job);
  if (over && judged) {
    view->stall_causes = entry->noted.stall_causes;
    return;
  }
  view->stall.reset();
  view->capturing = true;
}

Job Reconciler::DecideOne(JobEntry* entry, Time now) {
  entry->pace.Decided();
  NoteStarted(entry, now);
  JobView view = views_.ViewOf(*entry, now);
  AwaitRestarts(*entry->job, view, now, &entry->awaited.restarts);
  view.awaited_since = entry->awaited.restarts;
  AwaitRecovery(*entry->job, view, now, &entry->awaited.recovery);
  view.recovery = entry->awaited.recovery;
  if (IsRecovering(*entry->job)) entry->stall.Restart(now.mono);
  CaptureEvidence(entry, &view, now);
  if (entry->idle.end) {
    view.idle_end = {*entry->idle.end, now.mono - entry->idle.end_since};
  }
  if (entry->awaited.room) {
    view.room = {entry->awaited.room->size,
                 now.mono - entry->awaited.room->since};
  }
  Job next = server::Decide(*entry->job, view, parts_.options->timeouts, now);
  parts_.faults->NoteOutcome(*entry->job, next, view, now);
  NoteStall(entry, &next, now);
  NoteSilence(entry, &next, now);
  NoteIdle(entry, &next, now);
  NoteBadGpus(&next, view, now);
  return next;
}

std::map<JobName, Job> Reconciler::Decide(Time now) {
  std::map<JobName, Job> changed;
  for (const JobName& name : parts_.state->agenda.jobs) {
    JobEntry* const entry = parts_.state->jobs.Find(name);
    if (entry == nullptr) continue;
    Job next = DecideOne(entry, now);
    if (!(next == *entry->job)) changed.emplace(name, std::move(next));
  }
  parts_.state->agenda.jobs.clear();
  return changed;
}

void Reconciler::ReconcileSoon(Time now) {
  if (parts_.state->members.members().size() < kManyNodes) Reconcile(now);
}

void Reconciler::Reconcile(Time now) {
  Agenda& agenda = parts_.state->agenda;
  parts_.detector->ApplyLiveness();
  parts_.detector->ExtendLeasesAfterPause(now);
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::set<JobName> decided = agenda.jobs;
    std::map<JobName, Job> changed = Decide(now);
    if (agenda.capacity_changed) {
      parts_.scheduler->Schedule(now, &changed);
    } else if (agenda.places_wanted) {
      std::vector<HostCapacity> hosts;
      parts_.scheduler->PlaceReplacements(now, &hosts, &changed);
    }
    parts_.prefetch->Apply(now, &changed);
    if (changed.empty()) break;
    std::vector<JobName> names;
    for (const auto& [name, job] : changed) names.push_back(name);
    if (!parts_.committer->CommitJobs(std::move(changed), std::nullopt, now)
             .ok()) {
      // Nothing happened; the next tick tries again. What was decided before
      // is told all the same.
      agenda.jobs.insert(decided.begin(), decided.end());
      agenda.capacity_changed = true;
      break;
    }
    agenda.jobs.insert(names.begin(), names.end());
    for (const JobName& name : names) {
      const JobEntry* const entry = parts_.state->jobs.Find(name);
      agenda.places_wanted = agenda.places_wanted ||
                             (entry != nullptr && (WantsPlaces(*entry->job) ||
                                                   WantsSpares(*entry->job)));
    }
  }
  sender_.Send(now);
  // After the assignments: a gang joins what is being fetched for it.
  parts_.prefetch->Send();
}

}  // namespace lockstep::server
