#include "server/coordinator/job_view_builder.h"

#include <algorithm>

#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

// Whether the node was told to restart ranks of the gang and has not reported
// it.
bool IsRestarting(const NodeEntry& node, const GangKey& key) {
  const auto told = node.restarts.find(key);
  const auto gang = node.gangs.find(key);
  if (told == node.restarts.end() || gang == node.gangs.end()) {
    return false;
  }
  return std::any_of(gang->second.ranks.begin(), gang->second.ranks.end(),
                     [&](const RankStatus& rank) {
                       const auto number = told->second.find(rank.rank);
                       return number != told->second.end() &&
                              rank.restarts < number->second;
                     });
}

}  // namespace

JobView JobViewBuilder::ViewOf(const JobEntry& entry, Time now) const {
  std::set<NodeName> names = NodesOf(*entry.job);
  for (const Hold& hold : entry.job->holds) names.insert(hold.node);
  JobView view = ViewOf(entry, now, names);
  if (entry.job->state == JobState::kPreparing && !entry.job->cluster) {
    view.fresh_key = parts_.options->new_key();
  }
  return view;
}

JobView JobViewBuilder::ViewOf(const JobEntry& entry, Time now,
                               const std::set<NodeName>& nodes) const {
  JobView view;
  view.state_since = entry.state_since;
  view.all_started_since = entry.all_started_since;
  view.evidence_asked = entry.capture.number();
  view.fence = FenceOf(entry.job->spec, parts_.options->silence);
  // A machine that is all of a cluster may sleep, as a laptop does.
  if (view.fence && view.fence->neighbours_count &&
      !parts_.detector->silent().HasSeveralHosts()) {
    view.fence.reset();
  }
  parts_.faults->AddEvidence(entry.job->spec.name, now, &view);
  for (const NodeName& name : nodes) {
    view.nodes[name] = ViewOf(entry, name, now);
  }
  return view;
}

bool JobViewBuilder::IsLost(const JobEntry& entry, const Member& silent,
                            Time now) const {
  const NodeName& name = silent.info.name;
  if (entry.job->spec.kind == JobKind::kProgram) {
    const JobSpec& spec = entry.job->spec;
    const bool as_asked =
        spec.node_loss == NodeLoss::kNever || spec.node_lost_timeout;
    return parts_.detector->silent().IsLost(spec.name, name) ||
           (!as_asked && NeedTheOthers(*entry.job, name) &&
            parts_.detector->IsDead(silent, now));
  }
  return silent.SinceEvidence(now.mono) >
         parts_.detector->PatienceWith(entry, name);
}

JobView::Node JobViewBuilder::ViewOf(const JobEntry& entry,
                                     const NodeName& name, Time now) const {
  const Job& job = *entry.job;
  JobView::Node node;
  if (const Member* member = parts_.state->members.Find(name)) {
    node.state = member->state;
    // What else the node has may be worth waiting for; this job is not.
    if (node.state == NodeState::kUnknown && IsLost(entry, *member, now)) {
      node.state = NodeState::kLost;
    }
    node.last_sign = now.wall - member->SinceEvidence(now.mono);
    node.cools = parts_.faults->IsCooling(name);
    node.takes_work =
        member->TakesWork() && !node.cools && !parts_.guard->RunsUnknown(name);
    node.bad_gpus = member->FaultyGpus();
    node.drain = member->drain;
    node.address = member->info.address;
    node.clock_offset = member->clock.offset();
  } else {
    // Every node that a job names was stored before: an operator said that
    // it is gone.
    node.state = NodeState::kLost;
    node.forgotten = true;
    node.takes_work = false;
  }
  node.unseen = parts_.detector->RunsUnseen(entry, name, now);
  const NodeEntry* const here = parts_.state->nodes.Find(name);
  node.reported = here != nullptr && here->reported && !node.unseen;
  if (here == nullptr) return node;
  for (auto it = here->gangs.lower_bound({job.spec.name, 0});
       it != here->gangs.end() && it->first.first == job.spec.name; ++it) {
    if (node.unseen && it->first.second == job.generation) continue;
    // A stored job of the same name under another uid cannot be: names are
    // never used twice. A foreign gang is disowned by AssignmentSender.
    if (it->second.job_uid == job.uid) {
      node.gangs[it->first.second] = it->second;
    }
  }
  node.restarting = IsRestarting(*here, {job.spec.name, job.generation});
  return node;
}

}  // namespace lockstep::server
