// What their neighbours say of silent nodes.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {

void Coordinator::AskNeighbours(Time now) {
  std::erase_if(inquiries_, [&](const auto& inquiry) {
    mu_.AssertHeld();
    const Member* member = members_.Find(inquiry.first);
    return member == nullptr || member->state != NodeState::kUnknown;
  });
  for (const auto& [name, member] : members_.members()) {
    // One whose stream ended may be back in a moment.
    if (member.state != NodeState::kUnknown ||
        now.mono - member.last_beat <= options_.membership.lease) {
      continue;
    }
    const NodeSoft& soft = nodes_[name];
    if (soft.probe_port == 0 || soft.jobs.empty()) continue;
    const auto [it, is_new] = inquiries_.try_emplace(name, options_.inquiry);
    if (it->second.IsDue(now.mono)) Ask(member, &it->second, now);
  }
}

void Coordinator::Ask(const Member& silent, Inquiry* inquiry, Time now) {
  std::vector<Neighbour> ready;
  std::set<std::string> hosts;
  for (const auto& [name, member] : members_.members()) {
    hosts.insert(member.info.address);
    if (member.state == NodeState::kReady && nodes_[name].session) {
      ready.push_back({name, member.info.pool, member.info.address});
    }
  }
  const std::vector<NodeName> asked = ChooseNeighbours(
      silent.info.pool, silent.info.address, std::move(ready), hosts.size());
  ProbeQuery query;
  query.id = next_probe_++;
  query.timeout = options_.inquiry.probe_timeout;
  query.targets = {{silent.info.name, silent.info.address,
                    nodes_[silent.info.name].probe_port}};
  for (const NodeName& node : asked) {
    nodes_[node].session->link->SendProbe(query);
  }
  inquiry->Begin(query.id, asked, now.mono);
}

Status Coordinator::OnProbed(SessionId session, const ProbeAnswer& answer) {
  MutexLock lock(&mu_);
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  const Time now = clock_->Now();
  TakePairAnswer(node, answer, now);
  for (const ProbeResult& result : answer.results) {
    const auto it = inquiries_.find(result.node);
    if (it == inquiries_.end()) continue;
    Inquiry& inquiry = it->second;
    const Inquiry::Finding before = inquiry.finding();
    inquiry.Take(answer.id, node, result, now.mono);
    if (inquiry.finding() == before) continue;
    const bool reached = inquiry.finding() == Inquiry::Finding::kReached;
    LOG_WARN("node {}: {}", result.node,
             reached ? "reached by its neighbours: cut from the coordinator"
                     : "silent, and not reached by " + inquiry.Describe());
    if (reached || !inquiry.MayNote()) continue;
    members_.NoteUnreachable(result.node, inquiry.Describe(), now.wall);
    NoteNode(result.node);
  }
  return OkStatus();
}

bool Coordinator::IsUnreachable(const NodeName& node) {
  const auto it = inquiries_.find(node);
  if (it == inquiries_.end() ||
      it->second.finding() != Inquiry::Finding::kUnreachable) {
    return false;
  }
  const Member* member = members_.Find(node);
  return member != nullptr && member->last_evidence < it->second.asked_at();
}

}  // namespace lockstep
