#include "server/coordinator/prober.h"

#include "common/model/probe.h"

namespace lockstep::server {

bool Prober::MayBeAsked(const NodeName& node) const {
  const Member* const member = state_->members.Find(node);
  const NodeEntry* const entry = state_->nodes.Find(node);
  return member != nullptr && member->state == NodeState::kReady &&
         entry != nullptr && entry->session && entry->probe_port != 0;
}

uint64_t Prober::Ask(const std::map<NodeName, std::set<NodeName>>& asked,
                     int32_t unknown_port) {
  ProbeQuery query;
  query.id = next_id_++;
  query.timeout = timeout_;
  for (const auto& [node, about] : asked) {
    WorkerLink* const link = state_->nodes.At(node).session->link.get();
    query.targets.clear();
    for (const NodeName& other : about) {
      const int32_t port = state_->nodes.At(other).probe_port;
      query.targets.push_back({other, state_->members.Find(other)->info.address,
                               port == 0 ? unknown_port : port});
      if (query.targets.size() < kMaxProbeTargets) continue;
      link->SendProbe(query);
      query.targets.clear();
    }
    if (!query.targets.empty()) link->SendProbe(query);
  }
  return query.id;
}

}  // namespace lockstep::server
