#include "server/notify/notification_rules.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace lockstep::server {
namespace {

std::optional<NotificationKind> KindOfNodeEvent(Reason reason) {
  switch (reason) {
    case Reason::kNodeSilent:
    case Reason::kNodeQuarantined:
    case Reason::kNodeUnreachable:
    case Reason::kNodeRebooted:
      return NotificationKind::kNodeFault;
    case Reason::kNodeBack:
      return NotificationKind::kNodeBack;
    case Reason::kNodeGpuLost:
    case Reason::kNodeGpuError:
    case Reason::kNodeGpuWithheld:
    case Reason::kNodeGpuReclaim:
      return NotificationKind::kGpuFault;
    default:
      return std::nullopt;
  }
}

NotificationKind KindOfEnd(JobState state) {
  if (state == JobState::kSucceeded) return NotificationKind::kFinished;
  return state == JobState::kFailed ? NotificationKind::kFailed
                                    : NotificationKind::kCancelled;
}

// The last word about the stall of the generation: the verdict, if it is known.
std::string WhyItStoodStill(const Job& job, Generation generation) {
  for (auto event = job.events.rbegin(); event != job.events.rend(); ++event) {
    if (event->reason == Reason::kNoProgress &&
        event->generation == generation) {
      return event->message;
    }
  }
  return "";
}

}  // namespace

Notification NotificationRules::OfJob(NotificationKind kind,
                                      const JobSnapshot& snapshot,
                                      WallTime time, Reason reason,
                                      std::string text) const {
  const Job& job = *snapshot.job;
  Notification n;
  n.id = fmt::format("{}-{}-{}", job.uid, Name(kind), ToUnixNanos(time));
  n.time = time;
  n.kind = kind;
  n.cluster = cluster_;
  n.job = job.spec.name;
  n.owner = job.owner;
  n.labels = job.spec.labels;
  n.reason = Name(reason);
  n.text = std::move(text);
  n.cost = fmt::format("{:.2f} {}", snapshot.bill.cost, snapshot.bill.currency);
  if (!url_.empty()) n.url = fmt::format("{}/jobs/{}", url_, n.job);
  n.command = fmt::format("lockstep jobs why {}", n.job);
  return n;
}

Notification NotificationRules::OfNode(NotificationKind kind,
                                       const NodeName& node,
                                       const Event& event) const {
  Notification n;
  n.id = fmt::format("{}-{}-{}", node, Name(kind), ToUnixNanos(event.time));
  n.time = event.time;
  n.kind = kind;
  n.cluster = cluster_;
  n.node = node;
  n.reason = Name(event.reason);
  n.text = event.message;
  if (!url_.empty()) n.url = fmt::format("{}/nodes/{}", url_, node);
  n.command = fmt::format("lockstep nodes describe {}", node);
  return n;
}

void NotificationRules::AddJob(const JobSnapshot& snapshot, WallTime since,
                               std::vector<Notification>* out) const {
  const Job& job = *snapshot.job;
  if (job.start_time && *job.start_time > since) {
    out->push_back(OfJob(
        NotificationKind::kStarted, snapshot, *job.start_time, Reason::kRunning,
        fmt::format("it waited for {}",
                    FormatDuration(*job.start_time - job.create_time))));
  }
  const bool ends = IsFinal(job.state) || job.outcome;
  for (const Attempt& attempt : job.attempts) {
    if (ends || attempt.end_time <= since) continue;
    std::string text = fmt::format("attempt {} ended: {}", attempt.ordinal,
                                   attempt.end_cause.message);
    const std::string why = WhyItStoodStill(job, attempt.generation);
    if (attempt.end_cause.reason == Reason::kStalled && !why.empty()) {
      text += "; " + why;
    }
    out->push_back(OfJob(NotificationKind::kRestarted, snapshot,
                         attempt.end_time, attempt.end_cause.reason,
                         std::move(text)));
  }
  for (const Event& event : job.events) {
    if (event.time <= since) continue;
    if (event.reason == Reason::kNodeGpuError) {
      out->push_back(OfJob(NotificationKind::kGpuFault, snapshot, event.time,
                           event.reason, event.message));
    } else if (event.reason == Reason::kIdle) {
      out->push_back(OfJob(NotificationKind::kIdle, snapshot, event.time,
                           event.reason, event.message));
    }
  }
  if (IsFinal(job.state) && job.end_time && *job.end_time > since) {
    std::string text = job.cause.message;
    if (text.empty()) text = Name(job.cause.reason);
    out->push_back(OfJob(KindOfEnd(job.state), snapshot, *job.end_time,
                         job.cause.reason, std::move(text)));
  }
}

void NotificationRules::AddStall(const JobSnapshot& snapshot, WallTime now,
                                 std::vector<Notification>* out) {
  const std::string& uid = snapshot.job->uid;
  if (!snapshot.stall) {
    stalls_.erase(uid);
    return;
  }
  Stall& stall = stalls_.try_emplace(uid, Stall{now, false}).first->second;
  if (stall.told ||
      (snapshot.stall_verdict.empty() && now - stall.seen < kVerdictTime)) {
    return;
  }
  stall.told = true;
  out->push_back(OfJob(NotificationKind::kStalled, snapshot, stall.seen,
                       Reason::kNoProgress,
                       snapshot.waiting ? snapshot.waiting->message : ""));
}

void NotificationRules::AddNode(const NodeSnapshot& snapshot, WallTime since,
                                std::vector<Notification>* out) const {
  const Member& member = snapshot.member;
  for (const Event& event : member.events) {
    const auto kind = KindOfNodeEvent(event.reason);
    if (!kind || event.time <= since) continue;
    // A node that was drained may be switched off.
    if (event.reason == Reason::kNodeSilent && member.drain &&
        snapshot.jobs.empty()) {
      continue;
    }
    out->push_back(OfNode(*kind, member.info.name, event));
  }
}

std::vector<Notification> NotificationRules::Since(
    WallTime since, const CoordinatorView& view) {
  std::vector<Notification> found;
  std::set<std::string> uids;
  for (const CoordinatorView::JobEntry& entry : view.jobs) {
    uids.insert(entry.snapshot.job->uid);
    AddJob(entry.snapshot, since, &found);
    AddStall(entry.snapshot, view.time.wall, &found);
  }
  std::erase_if(stalls_,
                [&](const auto& stall) { return !uids.contains(stall.first); });
  for (const NodeSnapshot& node : view.nodes) AddNode(node, since, &found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Notification& a, const Notification& b) {
                     return a.time < b.time;
                   });
  return found;
}

}  // namespace lockstep::server
