#include "server/coordinator/snapshot_maker.h"

#include <string>

#include "server/core/assignments.h"

namespace lockstep::server {
namespace {

// "rank 0 in step, rank 1 in no phase, ..."
std::string WhatRanksDo(const JobSnapshot& snapshot) {
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
  return doing;
}

}  // namespace

std::optional<Cause> SnapshotMaker::SilentNodeOf(const Job& job,
                                                 MonoTime now) const {
  for (const NodeName& node : NodesOf(job)) {
    const Member* member = parts_.state->members.Find(node);
    if (member == nullptr || member->state == NodeState::kReady) continue;
    Cause trouble{
        Reason::kNodeUnknown,
        fmt::format("node {} has been silent for {} ({}: {}); its ranks are "
                    "left alone until it is back",
                    node, FormatDuration(now - member->last_beat),
                    Name(member->state), member->message)};
    if (auto word = parts_.detector->silent().WordOf(job)) {
      trouble.message = std::move(word->text);
    }
    if (job.failing || job.outcome) {
      // Why it is being stopped is the news; this is why that takes long.
      trouble.reason = job.cause.reason;
      trouble.message = job.cause.message + "; " + trouble.message;
    }
    return trouble;
  }
  return std::nullopt;
}

std::optional<Cause> SnapshotMaker::TroubleOf(const JobEntry& entry,
                                              const JobSnapshot& snapshot,
                                              Time now) const {
  const Job& job = *entry.job;
  if (auto silent = SilentNodeOf(job, now.mono)) return silent;
  if (snapshot.stall) {
    std::string text = Describe(job, *snapshot.stall);
    if (!snapshot.stall_verdict.empty()) text += "; " + snapshot.stall_verdict;
    return Cause{Reason::kNoProgress, std::move(text)};
  }
  const auto last_step = entry.meter.last_step_time();
  // A program's daemons judge it by limits of its own.
  if (job.spec.kind != JobKind::kNative || job.state != JobState::kRunning ||
      job.failing || !last_step || now.mono - *last_step < kQuietTime) {
    return std::nullopt;
  }
  return Cause{
      Reason::kNoProgress,
      fmt::format("no step for {}: {}", FormatDuration(now.mono - *last_step),
                  WhatRanksDo(snapshot))};
}

void SnapshotMaker::AddLive(JobSnapshot* snapshot) const {
  const Job& job = *snapshot->job;
  for (const NodeName& name : NodesOf(job)) {
    const NodeEntry* const node = parts_.state->nodes.Find(name);
    if (node == nullptr) continue;
    const auto gang = node->gangs.find({job.spec.name, job.generation});
    if (gang == node->gangs.end()) continue;
    for (const RankStatus& rank : gang->second.ranks) {
      snapshot->live[rank.rank] = rank;
      snapshot->live[rank.rank].usage = UsageOf(job, rank);
    }
  }
}

JobSnapshot SnapshotMaker::SnapshotOf(const JobEntry& entry, Time now) const {
  JobSnapshot snapshot;
  snapshot.job = entry.job;
  snapshot.time = now.wall;
  const Job& job = *entry.job;
  if (job.state == JobState::kQueued || job.state == JobState::kPlacing) {
    snapshot.waiting = entry.waiting;
  }
  if (!IsFinal(job.state)) {
    AddLive(&snapshot);
    if (job.state == JobState::kRunning || job.state == JobState::kFinishing) {
      snapshot.progress = entry.meter.Info();
    }
    snapshot.stall = entry.StalledRank(now.mono);
    if (snapshot.stall) snapshot.stall_verdict = entry.noted.stall_verdict;
    if (!snapshot.waiting) snapshot.waiting = TroubleOf(entry, snapshot, now);
  }
  snapshot.bill = parts_.billing->BillOf(job, now);
  return snapshot;
}

NodeSnapshot SnapshotMaker::SnapshotOf(const Member& member) const {
  const NodeName& name = member.info.name;
  NodeSnapshot snapshot;
  snapshot.member = member;
  if (const NodeEntry* const node = parts_.state->nodes.Find(name)) {
    for (const JobName& job : node->jobs) {
      snapshot.jobs.push_back(job);
      const JobEntry& entry = parts_.state->jobs.At(job);
      for (const size_t index : entry.places.HoldsOn(name)) {
        const Hold& hold = entry.job->holds[index];
        snapshot.allocated.cpus += hold.resources.cpus;
        snapshot.allocated.memory_bytes += hold.resources.memory_bytes;
        snapshot.allocated.gpus += static_cast<int32_t>(hold.gpus.size());
        for (const int32_t gpu : hold.gpus) snapshot.gpu_jobs[gpu] = job;
      }
    }
  }
  snapshot.member.state = member.Shown(!snapshot.jobs.empty());
  if (snapshot.member.message.empty() && member.drain) {
    snapshot.member.message = Describe(*member.drain);
  }
  if (parts_.guard->RunsUnknown(name)) {
    snapshot.unknown = parts_.guard->UnknownOn(name);
    if (snapshot.member.message.empty()) {
      snapshot.member.message =
          "runs what the store does not know; no new work until that has ended";
    }
  }
  snapshot.needs_operator = parts_.detector->silent().NeedsOperator(name);
  parts_.faults->Show(&snapshot);
  return snapshot;
}

}  // namespace lockstep::server
