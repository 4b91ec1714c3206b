#include "server/coordinator/node_registry.h"

namespace lockstep::server {

void NodeEntry::Reset(Arrival arrival, const Incarnation& incarnation) {
  session = NodeSession();
  session->id = arrival.id;
  session->incarnation = incarnation;
  session->link = std::move(arrival.link);
  probe_port = arrival.probe_port;
  reported = true;
  gangs.clear();
  restarts.clear();
  prefetched.clear();
  work_jobs = {arrival.work_jobs.begin(), arrival.work_jobs.end()};
  for (GangStatus& gang : arrival.gangs) {
    work_jobs.insert(gang.job_uid);
    GangKey key{gang.job, gang.generation};
    gangs[std::move(key)] = std::move(gang);
  }
}

const NodeEntry* NodeRegistry::Find(const NodeName& node) const {
  const auto it = entries_.find(node);
  return it == entries_.end() ? nullptr : &it->second;
}

StatusOr<NodeName> NodeRegistry::NodeOf(SessionId session) const {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) {
    return WithReason(Aborted("a later stream of this node has registered"),
                      "STALE_SESSION");
  }
  return it->second;
}

void NodeRegistry::Open(const NodeInfo& info, Arrival arrival) {
  Close(info.name);
  sessions_[arrival.id] = info.name;
  entries_[info.name].Reset(std::move(arrival), info.incarnation);
}

void NodeRegistry::Close(const NodeName& node) {
  std::optional<NodeSession>& session = entries_[node].session;
  if (!session) return;
  sessions_.erase(session->id);
  session.reset();
}

WaitingNewcomer* NodeRegistry::FindNewcomer(SessionId session) {
  for (auto& [name, waiting] : newcomers_) {
    if (waiting.arrival.id == session) return &waiting;
  }
  return nullptr;
}

void NodeRegistry::DropWork(const std::string& uid) {
  for (auto& [name, entry] : entries_) {
    if (!entry.session || entry.work_jobs.erase(uid) == 0) continue;
    entry.session->link->SendDropWork({uid});
  }
}

void NodeRegistry::CloseStreams(const Status& status) {
  for (auto& [name, entry] : entries_) {
    if (entry.session) entry.session->link->Close(status);
  }
  for (auto& [name, waiting] : newcomers_) waiting.arrival.link->Close(status);
}

}  // namespace lockstep::server
