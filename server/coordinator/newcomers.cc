// Daemons that register while the stream of another one of their name is open.
// They wait with their stream open: no thread and no lock waits with them.

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"
#include "server/core/job_roles.h"

namespace lockstep {

Coordinator::Waiting* Coordinator::FindNewcomer(SessionId session) {
  for (auto& [name, waiting] : newcomers_) {
    if (waiting.arrival.id == session) return &waiting;
  }
  return nullptr;
}

bool Coordinator::IsContested(const NodeName& node) {
  MutexLock lock(&mu_);
  return newcomers_.contains(node);
}

StatusOr<bool> Coordinator::AwaitJudgement(const NodeInfo& info,
                                           Arrival* arrival, Time now) {
  const auto known = newcomers_.find(info.name);
  if (known != newcomers_.end()) {
    Waiting& waiting = known->second;
    if (!(waiting.newcomer.info.incarnation == info.incarnation)) {
      return Unavailable(
          "node {}: whether another daemon may speak for it is judged just "
          "now: try again",
          info.name);
    }
    // It connected again, which is no more time for the other one.
    waiting.arrival.link->Close(WithReason(
        Unavailable("a later stream of node {} has registered", info.name),
        "STALE_SESSION"));
    waiting.newcomer.info = info;
    waiting.arrival = std::move(*arrival);
    return true;
  }
  const auto soft = nodes_.find(info.name);
  const bool connected = soft != nodes_.end() && soft->second.session;
  if (!connected || !members_.IsNewcomer(info)) {
    if (!connected) {
      LOCKSTEP_RETURN_IF_ERROR(members_.CheckBarred(info, now.mono));
    }
    return false;
  }
  newcomers_[info.name] = {members_.Expect(info, now.mono),
                           std::move(*arrival)};
  LOG_INFO(
      "node {}: a daemon of start {} registers from {} while another one's "
      "stream is open",
      info.name, info.incarnation.counter, info.address);
  return true;
}

void Coordinator::NoteContest(const NodeInfo& other, Time now, bool proven) {
  if (!members_.Contest(other, now, proven)) return;
  LOG_WARN("node {}: {}", other.name, members_.Find(other.name)->quarantine);
  capacity_changed_ = true;
  NoteNode(other.name);
}

void Coordinator::JudgeNewcomer(const NodeName& node, Time now) {
  const auto it = newcomers_.find(node);
  if (it == newcomers_.end()) return;
  const auto& old = nodes_[node].session;
  const Judgement judgement =
      members_.Judge(it->second.newcomer, old.has_value(), now.mono);
  if (judgement == Judgement::kOpen) return;
  Waiting waiting = std::move(it->second);
  newcomers_.erase(it);
  const NodeInfo& info = waiting.newcomer.info;
  const std::shared_ptr<WorkerLink> link = waiting.arrival.link;
  if (judgement == Judgement::kRefused) {
    if (waiting.newcomer.other_beat) NoteContest(info, now, /*proven=*/true);
    LOG_WARN("node {}: the daemon on {} ({}) is refused", node, info.hostname,
             info.address);
    link->Close(members_.Refusal(info));
    return;
  }
  // The other one is as good as gone: it is no live process of the same start.
  if (old) members_.Disconnect(node, old->incarnation, now);
  if (const Status status = Admit(info, std::move(waiting.arrival), now);
      !status.ok()) {
    link->Close(status);
  }
}

void Coordinator::JudgeNewcomers(Time now) {
  std::vector<NodeName> nodes;
  for (const auto& [node, waiting] : newcomers_) nodes.push_back(node);
  for (const NodeName& node : nodes) JudgeNewcomer(node, now);
}

bool Coordinator::RunsUnseen(const Entry& entry, const NodeName& node,
                             Time now) {
  const std::optional<MonoTime> booted = nodes_[node].booted;
  const std::optional<MonoTime> stepped = entry.meter.last_step_time();
  const Job& job = *entry.job;
  if (!booted || !stepped || *booted < entry.state_since ||
      job.spec.kind != JobKind::kNative || job.state != JobState::kRunning ||
      job.failing) {
    return false;
  }
  // Steps need no evaluator.
  const std::vector<size_t>& here = entry.places.TasksOn(node);
  if (std::none_of(here.begin(), here.end(), [&](size_t task) {
        return IsOfGroup(job.tasks[task].type);
      })) {
    return false;
  }
  // A slow step may have begun just before.
  return now.mono - std::max(*booted, *stepped) <=
         std::min(entry.stall.Deadline(), options_.membership.lost_after);
}

}  // namespace lockstep
