#include "server/coordinator/cluster_state.h"

#include "common/model/names.h"

namespace lockstep::server {

StorePoint StoreIdentity::At(int64_t version) const {
  const auto own = epoch_starts.find(epoch);
  return {history, epoch, version,
          own == epoch_starts.end() ? std::string() : own->second.id};
}

StatusOr<const Member*> ClusterState::GetMember(const NodeName& name) const {
  if (const Member* const member = members.Find(name)) return member;
  std::vector<std::string> names;
  for (const auto& [known, member] : members.members()) {
    names.push_back(known);
  }
  const std::string near = Nearest(name, names);
  return WithReason(
      near.empty()
          ? NotFound("there is no node {}", name)
          : NotFound("there is no node {}; did you mean {}?", name, near),
      "NO_SUCH_NODE");
}

void ClusterState::NoteNode(const NodeName& node) {
  if (members.Find(node) != nullptr) agenda.unsaved_nodes.insert(node);
}

void ClusterState::TouchJobsOf(const NodeName& node) {
  const NodeEntry* const entry = nodes.Find(node);
  if (entry == nullptr) return;
  agenda.jobs.insert(entry->jobs.begin(), entry->jobs.end());
}

}  // namespace lockstep::server
