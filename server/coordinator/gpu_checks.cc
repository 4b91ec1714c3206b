#include "server/coordinator/gpu_checks.h"

#include <fmt/ranges.h>

#include <utility>

#include "common/base/logging.h"
#include "server/core/member_checks.h"

namespace lockstep::server {

std::set<int32_t> GpuChecks::HeldGpus(const NodeName& node) {
  std::set<int32_t> held;
  const NodeEntry& entry = state_.nodes.At(node);
  for (const auto& [key, gang] : entry.gangs) {
    if (!state_.jobs.IsLeftOver(node, gang)) continue;
    for (const Gpu& gpu : state_.members.Find(node)->info.gpus) {
      held.insert(gpu.index);
    }
    return held;
  }
  for (const JobName& name : entry.jobs) {
    const JobEntry& job = state_.jobs.At(name);
    for (const size_t index : job.places.HoldsOn(node)) {
      const Hold& hold = job.job->holds[index];
      held.insert(hold.gpus.begin(), hold.gpus.end());
    }
  }
  return held;
}

void GpuChecks::Begin(const NodeName& node, const std::vector<int32_t>& gpus,
                      const std::set<int32_t>& held, Pending pending,
                      Time now) {
  const NodeSession& session = *state_.nodes.At(node).session;
  GpuCheckOrder order{next_id_++, gpus, kGpuCheckWithin,
                      PartnerFor(*state_.members.Find(node), gpus, held)};
  const bool asked = pending.done != nullptr;
  state_.members.BeginCheck(node, order, asked, now);
  LOG_INFO("node {}: a check of GPUs {} begins{}", node, fmt::join(gpus, ", "),
           asked ? ", asked for by " + pending.request->client : "");
  pending.node = node;
  pending.session = session.id;
  pending.deadline = now.mono + kGpuCheckWithin + kGpuCheckReserve;
  pending_[order.id] = std::move(pending);
  // They get no work from now on.
  state_.agenda.capacity_changed = true;
  state_.TouchJobsOf(node);
  session.link->SendGpuCheck(order);
}

Status GpuChecks::Ask(const RequestKey& request, const NodeName& node,
                      const std::vector<int32_t>& gpus, Done done, Time now) {
  for (auto& [id, pending] : pending_) {
    if (!pending.request || pending.request->client != request.client ||
        pending.request->id != request.id) {
      continue;
    }
    if (pending.request->content_hash != request.content_hash) {
      return InvalidArgument("request_id: was used for another request");
    }
    std::swap(pending.done, done);
    done(Aborted("the request was repeated: its repetition gets the answer"));
    return OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member, state_.GetMember(node));
  const std::set<int32_t> held = HeldGpus(node);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int32_t> chosen,
                            MayCheck(*member, gpus, held));
  if (!state_.nodes.At(node).session) {
    return Unavailable("node {} is not connected", node);
  }
  Begin(node, chosen, held, {{}, 0, {}, request, std::move(done)}, now);
  return OkStatus();
}

void GpuChecks::End(uint64_t id, GpuCheckAnswer answer, Time now) {
  const auto it = pending_.find(id);
  const Pending pending = std::move(it->second);
  pending_.erase(it);
  answer.id = id;
  std::vector<GpuCheck> checks =
      state_.members.EndCheck(pending.node, answer, now);
  for (const GpuCheck& check : checks) {
    LOG_INFO("node {}: GPU {} {} a check of {}: {}", pending.node, check.index,
             check.failure.empty() ? "passed" : "failed",
             FormatDuration(check.took),
             check.failure.empty() ? Describe(check.parts) : check.failure);
  }
  if (!answer.status.ok()) {
    LOG_WARN("node {}: its GPUs were not checked: {}", pending.node,
             Message(answer.status));
  }
  state_.NoteNode(pending.node);
  state_.agenda.RoomMade(now.mono);
  state_.TouchJobsOf(pending.node);
  if (pending.done == nullptr) return;
  // Whoever asked may rely on what is answered.
  if (const Member* member = state_.members.Find(pending.node);
      member != nullptr && committer_.CommitNode(member->Record()).ok()) {
    state_.agenda.unsaved_nodes.erase(pending.node);
  }
  if (answer.status.ok()) {
    pending.done(std::move(checks));
  } else {
    pending.done(answer.status);
  }
}

void GpuChecks::TakeAnswer(const NodeName& node, const GpuCheckAnswer& answer,
                           Time now) {
  const auto it = pending_.find(answer.id);
  if (it == pending_.end() || it->second.node != node) return;
  const std::optional<NodeSession>& session = state_.nodes.At(node).session;
  if (!session || session->id != it->second.session) return;
  End(answer.id, answer, now);
}

void GpuChecks::Tick(Time now) {
  std::map<uint64_t, Status> over;
  for (const auto& [id, pending] : pending_) {
    const NodeEntry* const entry = state_.nodes.Find(pending.node);
    if (entry == nullptr || !entry->session ||
        entry->session->id != pending.session) {
      over[id] = Unavailable("node {}: its daemon's connection ended meanwhile",
                             pending.node);
    } else if (now.mono >= pending.deadline) {
      over[id] = DeadlineExceeded(
          "node {}: its daemon did not answer within {}", pending.node,
          FormatDuration(kGpuCheckWithin + kGpuCheckReserve));
    }
  }
  for (const auto& [id, status] : over) End(id, {id, status}, now);
  for (const auto& [node, member] : state_.members.members()) {
    if (member.checking.due.empty()) continue;
    const std::set<int32_t> held = HeldGpus(node);
    const std::vector<int32_t> due = DueChecks(member, held, now);
    if (!due.empty() && state_.nodes.At(node).session) {
      Begin(node, due, held, {}, now);
    }
  }
}

void GpuChecks::EndAll(const Status& status) {
  for (const auto& [id, pending] : std::exchange(pending_, {})) {
    if (pending.done != nullptr) pending.done(status);
  }
}

}  // namespace lockstep::server
