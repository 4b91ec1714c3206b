#include "server/coordinator/assignment_sender.h"

#include <memory>
#include <utility>

namespace lockstep::server {
namespace {

void NoteRestarts(const Assignment& assignment,
                  std::map<int32_t, int32_t>* restarts) {
  // What is only prepared starts nothing.
  if (!assignment.spec || assignment.goal < Goal::kLaunch) return;
  for (const LocalTask& task : assignment.spec->tasks) {
    for (const RankSpec& rank : task.ranks) {
      if (rank.restarts > 0) (*restarts)[rank.rank] = rank.restarts;
    }
  }
}

}  // namespace

std::map<NodeName, AssignmentSender::Wanted> AssignmentSender::WantedOf(
    const std::set<NodeName>& nodes, Time now) const {
  std::map<NodeName, Wanted> wanted;
  std::map<JobName, std::set<NodeName>> about;
  for (const NodeName& node : nodes) {
    wanted[node];
    const NodeEntry& entry = parts_.state->nodes.At(node);
    for (const JobName& name : entry.jobs) about[name].insert(node);
    // The node may have something of a generation before the job moved away.
    for (const auto& [key, gang] : entry.gangs) about[key.first].insert(node);
  }
  for (const auto& [name, told] : about) {
    const JobEntry* const entry = parts_.state->jobs.Find(name);
    if (entry == nullptr) continue;
    std::set<NodeName> seen = told;
    if (entry->job->failing) seen.merge(NodesOf(*entry->job));
    const JobView view = parts_.views->ViewOf(*entry, now, seen);
    const Assigner assigner(*entry->job, entry->places, view, *parts_.graces,
                            now);
    for (const NodeName& node : told) {
      const auto& gangs = parts_.state->nodes.At(node).gangs;
      for (Assignment& assignment : assigner.For(node)) {
        const GangKey key{name, assignment.generation};
        const auto gang = gangs.find(key);
        if (gang != gangs.end() && parts_.guard->IsUnknown(gang->second) &&
            !parts_.guard->EndsUnknown(node, now)) {
          continue;
        }
        wanted[node][key] = std::move(assignment);
      }
    }
  }
  return wanted;
}

void AssignmentSender::Disown(const NodeName& node, Time now,
                              Wanted* wanted) const {
  for (const auto& [key, gang] : parts_.state->nodes.At(node).gangs) {
    const JobEntry* const entry = parts_.state->jobs.Find(key.first);
    if (entry != nullptr && entry->job->uid == gang.job_uid) continue;
    if (parts_.guard->IsUnknown(gang) &&
        !parts_.guard->EndsUnknown(node, now)) {
      continue;
    }
    (*wanted)[key] = DisownedAssignment(gang);
  }
}

std::shared_ptr<const SharedClusterSpec> AssignmentSender::ClusterOf(
    const Assignment& assignment) {
  if (!Assigner::HasCluster(assignment)) return nullptr;
  // Kept with the job: each node that comes back would encode it anew.
  JobEntry& entry = parts_.state->jobs.At(assignment.job);
  if (entry.cluster == nullptr && entry.job->cluster) {
    entry.cluster =
        std::make_shared<const SharedClusterSpec>(*entry.job->cluster);
  }
  return entry.cluster;
}

void AssignmentSender::SendTo(NodeEntry* node, Wanted wanted) {
  NodeSession& session = *node->session;
  for (auto& [key, assignment] : wanted) {
    assignment.epoch = parts_.identity->epoch;
    const auto sent = session.sent.find(key);
    if (sent != session.sent.end() && sent->second == assignment) continue;
    Assignment message = assignment;
    message.version = parts_.writer->version();
    session.link->SendAssignment(message, ClusterOf(assignment));
    // What the node does with it needs no answer.
    if (assignment.goal == Goal::kForget) node->gangs.erase(key);
    NoteRestarts(assignment, &node->restarts[key]);
    session.sent[key] = std::move(assignment);
  }
  std::erase_if(session.sent, [&](const auto& entry) {
    return !wanted.contains(entry.first) || entry.second.goal == Goal::kForget;
  });
  std::erase_if(node->restarts, [&](const auto& entry) {
    return !session.sent.contains(entry.first);
  });
}

void AssignmentSender::Send(Time now) {
  std::set<NodeName> nodes = std::exchange(parts_.state->agenda.nodes, {});
  std::erase_if(nodes, [&](const NodeName& node) {
    return !parts_.state->nodes.At(node).session;
  });
  for (auto& [node, wanted] : WantedOf(nodes, now)) {
    Disown(node, now, &wanted);
    SendTo(&parts_.state->nodes.At(node), std::move(wanted));
  }
}

}  // namespace lockstep::server
