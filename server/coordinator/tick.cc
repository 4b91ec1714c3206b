// What time brings.

#include <algorithm>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"
#include "server/core/ending.h"
#include "server/core/holding.h"

namespace lockstep {
namespace {

// How often a store that could not write is tried.
constexpr Duration kProbeInterval = std::chrono::seconds(1);

}  // namespace

void Coordinator::Tick() {
  MutexLock lock(&mu_);
  const Time now = clock_->Now();
  ApplyProofs();
  ForgiveAbsence(now);
  JudgeNewcomers(now);
  AskNeighbours(now);
  ExpireStrikes(now);
  const auto patience = [&](const NodeName& node) {
    mu_.AssertHeld();
    return PatienceWith(node);
  };
  for (const NodeName& node : members_.Expire(now, patience)) {
    const Member* member = members_.Find(node);
    members_.NoteTasks(node, !nodes_[node].jobs.empty());
    LOG_WARN("node {}: {} ({})", node, Name(member->Shown(true)),
             member->message);
    capacity_changed_ = true;
    NoteNode(node);
    TouchJobsOf(node);
  }
  // The grace of a drain may be over.
  for (const auto& [node, count] : unknown_nodes_) tell_.insert(node);
  for (const JobName& name : live_) {
    Entry& entry = jobs_.at(name);
    Touch(name);
    // Goals change with time alone while a finished gang ends by itself, and
    // when the grace of a drain is over.
    if (entry.job->state == JobState::kFinishing || entry.job->failing) {
      for (const NodeName& node : NodesOf(*entry.job)) tell_.insert(node);
    }
    // Once: a job that has backed off may then wait for capacity for long.
    if (entry.waiting &&
        (entry.waiting->reason == Reason::kBackoff ||
         IsHoldReason(entry.waiting->reason)) &&
        entry.job->not_before && !BacksOff(entry, now)) {
      capacity_changed_ = true;
    }
  }
  if (!store_healthy_ && now.mono - last_probe_ >= kProbeInterval) {
    last_probe_ = now.mono;
    // Commands are refused, so nothing else would find out.
    StoreBatch probe;
    if (Commit(&probe).ok()) hub_->Publish(version_, {});
  }
  if (now.mono - last_progress_ >= std::chrono::seconds(1)) {
    last_progress_ = now.mono;
    std::map<JobName, JobProgressInfo> progress;
    for (const JobName& name : live_) {
      Entry& entry = jobs_.at(name);
      if (!entry.progress_news) continue;
      entry.progress_news = false;
      progress[name] = entry.meter.Info();
    }
    hub_->PublishProgress(progress);
  }
  StoreNodes();
  Sweep(now);
  Reconcile(now);
}

void Coordinator::ForgiveAbsence(Time now) {
  const Duration away = awake_ ? now.mono - *awake_ : Duration{};
  awake_ = now.mono;
  if (away > options_.membership.contest_judging) {
    // The other daemon's beats wait to be read.
    for (auto& [node, waiting] : newcomers_) {
      waiting.newcomer.deadline += away;
    }
  }
  if (away <= options_.membership.lease) return;
  LOG_WARN("stood still for {}: nodes and jobs are given that time again",
           FormatDuration(away));
  members_.ExtendLeases(away, now.mono);
  for (const JobName& name : live_) {
    Entry& entry = jobs_.at(name);
    if (entry.job->state == JobState::kFinishing) continue;
    entry.state_since = std::min(now.mono, entry.state_since + away);
    if (entry.all_started_since) {
      entry.all_started_since =
          std::min(now.mono, *entry.all_started_since + away);
    }
    for (auto& [rank, since] : entry.awaited_since) {
      since = std::min(now.mono, since + away);
    }
  }
}

Duration Coordinator::PatienceOf(const Entry& entry) const {
  if (entry.job->state != JobState::kRunning || entry.job->failing) {
    return options_.membership.lost_after;
  }
  return std::max(options_.membership.lost_after,
                  entry.stall.Deadline() + options_.adoption_window);
}

Duration Coordinator::PatienceWith(const Entry& entry, const NodeName& node) {
  return IsUnreachable(node) ? options_.membership.lease : PatienceOf(entry);
}

std::optional<Duration> Coordinator::PatienceWith(const NodeName& node) {
  Duration longest = options_.membership.lost_after;
  for (const JobName& name : nodes_[node].jobs) {
    const Entry& entry = jobs_.at(name);
    // Nothing else can say whether a program lives. Of ranks that have all
    // exited with 0 nothing needs to be known.
    if (entry.job->spec.kind == JobKind::kProgram &&
        !IsDoneOn(*entry.job, entry.places, node)) {
      return std::nullopt;
    }
    longest = std::max(longest, PatienceOf(entry));
  }
  if (IsUnreachable(node)) return options_.membership.lease;
  return longest;
}

}  // namespace lockstep
