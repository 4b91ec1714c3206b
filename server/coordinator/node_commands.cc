#include "server/coordinator/node_commands.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/base/logging.h"
#include "server/core/lifecycle.h"
#include "server/core/node_approval.h"

namespace lockstep::server {

namespace {

Status HasGpus(const Member& member, const std::vector<int32_t>& gpus) {
  for (const int32_t index : gpus) {
    const auto& offered = member.info.gpus;
    if (std::none_of(offered.begin(), offered.end(),
                     [&](const Gpu& gpu) { return gpu.index == index; })) {
      return InvalidArgument("node {} has no GPU {}: it offers {}",
                             member.info.name, index, offered.size());
    }
  }
  return OkStatus();
}

}  // namespace

std::map<JobName, Job> NodeCommands::JobsWithEvent(const NodeName& node,
                                                   Reason reason,
                                                   const std::string& message,
                                                   Time now) const {
  std::map<JobName, Job> changed;
  for (const JobName& name : parts_.state->nodes.At(node).jobs) {
    Job next = *parts_.state->jobs.At(name).job;
    AddEvent(&next, reason, message, now);
    changed.emplace(name, std::move(next));
  }
  return changed;
}

StatusOr<std::string> NodeCommands::Answer(const RequestKey& request,
                                           const NodeRecord& record,
                                           const EncodeNode& encode, Time now,
                                           bool ends_quarantine) {
  const NodeName& name = record.info.name;
  Membership& members = parts_.state->members;
  Member after = *members.Find(name);
  if (ends_quarantine) after.EndQuarantine();
  const bool news = !(after.Record() == record);
  after.Take(record);
  std::string response = encode(parts_.snapshots->SnapshotOf(after));
  std::map<JobName, Job> changed;
  std::vector<const NodeRecord*> nodes;
  if (news) {
    changed = JobsWithEvent(
        name, record.events.back().reason,
        fmt::format("node {}: {}", name, record.events.back().message), now);
    nodes = {&record};
  }
  LOCKSTEP_RETURN_IF_ERROR(parts_.committer->CommitJobs(
      std::move(changed), AnsweredWith(request, response, now.wall), now,
      nodes));
  if (news) {
    members.Apply(record);
    if (ends_quarantine) members.EndQuarantine(name);
    parts_.state->agenda.unsaved_nodes.erase(name);
    LOG_INFO("node {}: {}", name, record.events.back().message);
  }
  parts_.state->agenda.RoomMade(now.mono);
  parts_.state->TouchJobsOf(name);
  parts_.reconciler->Reconcile(now);
  return response;
}

StatusOr<std::string> NodeCommands::Change(
    const RequestKey& request, const NodeName& name, const EncodeNode& encode,
    const std::function<NodeRecord(const Member&, Time)>& change) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer,
                            parts_.writer->answers().AnswerTo(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member,
                            parts_.state->GetMember(name));
  const Time now = parts_.clock->Now();
  return Answer(request, change(*member, now), encode, now);
}

StatusOr<std::string> NodeCommands::DrainNode(const RequestKey& request,
                                              const NodeName& name, Drain drain,
                                              const EncodeNode& encode) {
  return Change(request, name, encode, [&](const Member& member, Time now) {
    drain.time = now.wall;
    return server::DrainNode(member.Record(), std::move(drain));
  });
}

StatusOr<std::string> NodeCommands::ApproveNode(const RequestKey& request,
                                                const NodeName& name,
                                                const EncodeNode& encode) {
  return Change(request, name, encode, [&](const Member& member, Time now) {
    return server::ApproveNode(member.Record(), request.client, now.wall);
  });
}

StatusOr<std::string> NodeCommands::UndrainNode(
    const RequestKey& request, const NodeName& name,
    const std::vector<int32_t>& gpus, const EncodeNode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer,
                            parts_.writer->answers().AnswerTo(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member,
                            parts_.state->GetMember(name));
  LOCKSTEP_RETURN_IF_ERROR(HasGpus(*member, gpus));
  const Time now = parts_.clock->Now();
  parts_.state->members.LiftFaults(name, gpus);
  if (!gpus.empty()) {
    return Answer(request,
                  LiftFaults(member->Record(), gpus, request.client, now.wall),
                  encode, now);
  }
  // Quarantine is soft, and comes back where two daemons still take turns.
  const bool quarantined = !member->quarantine.empty();
  // So is what the node failed at: an operator says that all is well.
  parts_.faults->Clear(name);
  return Answer(request,
                server::UndrainNode(member->Record(), quarantined,
                                    request.client, now.wall),
                encode, now, quarantined);
}

Status NodeCommands::CheckGpus(const RequestKey& request, const NodeName& name,
                               const std::vector<int32_t>& gpus,
                               GpuChecks::Done done) {
  MutexLock lock(&mu_);
  const Time now = parts_.clock->Now();
  LOCKSTEP_RETURN_IF_ERROR(
      parts_.checks->Ask(request, name, gpus, std::move(done), now));
  parts_.reconciler->ReconcileSoon(now);
  return OkStatus();
}

StatusOr<std::string> NodeCommands::ForgetNode(const RequestKey& request,
                                               const NodeName& name,
                                               const EncodeJobs& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer,
                            parts_.writer->answers().AnswerTo(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member,
                            parts_.state->GetMember(name));
  if (member->state == NodeState::kReady) {
    return WithReason(
        FailedPrecondition("node {} is connected: stop its daemon first, or "
                           "drain the node",
                           name),
        "NODE_CONNECTED");
  }
  const Time now = parts_.clock->Now();
  const std::set<JobName> jobs = parts_.state->nodes.At(name).jobs;
  std::string response = encode({jobs.begin(), jobs.end()});
  // The node's own events go with it.
  std::map<JobName, Job> changed = JobsWithEvent(
      name, Reason::kNodeForgotten,
      fmt::format("node {}: given up by {}, what it still ran counts "
                  "as lost",
                  name, request.client),
      now);
  LOCKSTEP_RETURN_IF_ERROR(parts_.committer->CommitJobs(
      std::move(changed), AnsweredWith(request, response, now.wall), now, {},
      {name}));
  LOG_WARN("node {}: given up by {}; {} jobs had something there", name,
           request.client, jobs.size());
  Forget(name, request.client, now);
  parts_.state->agenda.jobs.insert(jobs.begin(), jobs.end());
  parts_.reconciler->Reconcile(now);
  return response;
}

void NodeCommands::Forget(const NodeName& name, const std::string& client,
                          Time now) {
  parts_.detector->GiveUp(name, now.mono);
  parts_.state->members.Forget(name);
  parts_.guard->Forget(name);
  parts_.faults->Clear(name);
  parts_.state->agenda.unsaved_nodes.erase(name);
  NodeEntry& entry = parts_.state->nodes.At(name);
  if (entry.session) {
    // Silent, not gone: should it be heard of again, it registers as new.
    entry.session->link->Close(
        Unavailable("node {} was given up by {}: "
                    "register again",
                    name, client));
    parts_.state->nodes.Close(name);
  }
  entry.gangs.clear();
  entry.reported = false;
  parts_.admission->Judge(name, now);
  parts_.state->agenda.capacity_changed = true;
}

}  // namespace lockstep::server
