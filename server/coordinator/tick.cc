// What time brings.

#include <map>
#include <optional>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"
#include "server/core/holding.h"
#include "server/core/replacing.h"
#include "server/core/rescale.h"

namespace lockstep::server {
namespace {

constexpr Duration kProgressInterval = std::chrono::seconds(1);
// For jobs that may have more tasks.
constexpr Duration kLookForRoom = std::chrono::seconds(2);

}  // namespace

void Coordinator::ExpireNodes(Time now) {
  ClusterState& state = core_.state;
  const FailureDetector& detector = core_.detector;
  const auto patience = [&detector](const NodeName& node) {
    return detector.PatienceWith(node);
  };
  for (const NodeName& node : state.members.Expire(now, patience)) {
    const Member* member = state.members.Find(node);
    state.members.NoteTasks(node, !state.nodes.At(node).jobs.empty());
    LOG_WARN("node {}: {} ({})", node, Name(member->Shown(true)),
             member->message);
    state.agenda.capacity_changed = true;
    state.NoteNode(node);
    state.TouchJobsOf(node);
  }
}

void Coordinator::TouchLiveJobs(Time now) {
  Agenda& agenda = core_.state.agenda;
  for (const JobName& name : core_.state.jobs.live()) {
    const JobEntry& entry = core_.state.jobs.At(name);
    agenda.jobs.insert(name);
    // Goals change with time alone while a finished gang ends by itself, and
    // when the grace of a drain is over.
    if (entry.job->state == JobState::kFinishing || entry.job->failing) {
      agenda.nodes.merge(NodesOf(*entry.job));
    }
    // A node may have forgotten the generation since.
    if (WantsPlaces(*entry.job)) agenda.places_wanted = true;
    // Once: with fewer tasks it is placed, or waits for another reason.
    if (entry.waiting && entry.waiting->reason == Reason::kFewerTasks &&
        now.wall - entry.job->state_time >= kFullSizePatience) {
      agenda.capacity_changed = true;
    }
    // Once: a job that has backed off may then wait for capacity for long.
    if (entry.waiting &&
        (entry.waiting->reason == Reason::kBackoff ||
         IsHoldReason(entry.waiting->reason)) &&
        entry.job->not_before && !core_.scheduler.BacksOff(entry, now)) {
      agenda.capacity_changed = true;
    }
  }
}

void Coordinator::PublishProgress(MonoTime now) {
  if (now - last_progress_ < kProgressInterval) return;
  last_progress_ = now;
  std::map<JobName, JobProgressInfo> progress;
  for (const JobName& name : core_.state.jobs.live()) {
    JobEntry& entry = core_.state.jobs.At(name);
    if (!entry.progress_news) continue;
    entry.progress_news = false;
    progress[name] = entry.meter.Info();
  }
  hub_->PublishProgress(progress);
}

void Coordinator::Tick() {
  MutexLock lock(&mu_);
  const Time now = clock_.Now();
  core_.detector.ApplyLiveness();
  core_.detector.ExtendLeasesAfterPause(now);
  core_.admission.JudgeAll(now);
  core_.detector.AskNeighbours(now);
  core_.faults.Expire(now);
  ExpireNodes(now);
  core_.checks.Tick(now);
  core_.guard.TouchUnknown();
  TouchLiveJobs(now);
  if (now.mono - last_look_ >= kLookForRoom) {
    last_look_ = now.mono;
    core_.scheduler.LookForMoreRoom(now);
  }
  core_.committer.ProbeStore(now);
  PublishProgress(now.mono);
  core_.committer.StoreUnsavedNodes();
  core_.retention.Sweep(now);
  core_.reconciler.Reconcile(now);
}

}  // namespace lockstep::server
