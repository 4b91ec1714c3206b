// What operators do with nodes, and how nodes are shown.

#include "common/base/logging.h"
#include "common/model/names.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {
namespace {

// Written in one commit; the rest waits for the next tick.
constexpr size_t kMaxNodesOfCommit = 100;

}  // namespace

// ---- Views -----------------------------------------------------------------

NodeSnapshot Coordinator::SnapshotOf(const Member& member) {
  NodeSnapshot snapshot;
  snapshot.member = member;
  const auto soft = nodes_.find(member.info.name);
  if (soft != nodes_.end()) {
    for (const JobName& name : soft->second.jobs) {
      snapshot.jobs.push_back(name);
      const Entry& entry = jobs_.at(name);
      for (const size_t index : entry.places.HoldsOn(member.info.name)) {
        const Hold& hold = entry.job->holds[index];
        snapshot.allocated.cpus += hold.resources.cpus;
        snapshot.allocated.memory_bytes += hold.resources.memory_bytes;
        snapshot.allocated.gpus += static_cast<int32_t>(hold.gpus.size());
      }
    }
  }
  snapshot.member.state = member.Shown(!snapshot.jobs.empty());
  if (snapshot.member.message.empty() && member.drain) {
    snapshot.member.message = Describe(*member.drain);
  }
  if (unknown_nodes_.contains(member.info.name)) {
    for (const auto& [key, gang] : soft->second.gangs) {
      if (!IsUnknown(gang)) continue;
      snapshot.unknown.push_back({gang.job, gang.job_uid, gang.generation});
    }
    if (snapshot.member.message.empty()) {
      snapshot.member.message =
          "runs what the store does not know; no new work until that has ended";
    }
  }
  ShowStrikes(&snapshot);
  return snapshot;
}

std::vector<NodeSnapshot> Coordinator::ListNodes() {
  MutexLock lock(&mu_);
  std::vector<NodeSnapshot> nodes;
  for (const auto& [name, member] : members_.members()) {
    nodes.push_back(SnapshotOf(member));
  }
  return nodes;
}

StatusOr<NodeSnapshot> Coordinator::GetNode(const NodeName& name) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member, FindMember(name));
  return SnapshotOf(*member);
}

StatusOr<const Member*> Coordinator::FindMember(const NodeName& name) {
  if (const Member* member = members_.Find(name)) return member;
  std::vector<std::string> names;
  for (const auto& [known, member] : members_.members()) {
    names.push_back(known);
  }
  const std::string near = Nearest(name, names);
  return WithReason(
      near.empty()
          ? NotFound("there is no node {}", name)
          : NotFound("there is no node {}; did you mean {}?", name, near),
      "NO_SUCH_NODE");
}

// ---- Commands --------------------------------------------------------------

std::optional<AnsweredRequest> Coordinator::Remember(
    const RequestKey& request, const std::string& response, Time now) {
  if (request.id.empty()) return std::nullopt;
  AnsweredRequest answered;
  answered.client = request.client;
  answered.id = request.id;
  answered.method = request.method;
  answered.content_hash = request.content_hash;
  answered.response = response;
  answered.time = now.wall;
  return answered;
}

StatusOr<std::string> Coordinator::AnswerNode(const RequestKey& request,
                                              const NodeRecord& record,
                                              const EncodeNode& encode,
                                              Time now, bool ends_quarantine) {
  const NodeName& name = record.info.name;
  Member after = *members_.Find(name);
  if (ends_quarantine) after.EndQuarantine();
  const bool news = !(after.Record() == record);
  after.Take(record);
  std::string response = encode(SnapshotOf(after));
  std::map<JobName, Job> changed;
  if (news) {
    for (const JobName& job : nodes_[name].jobs) {
      Job next = *jobs_.at(job).job;
      AddEvent(&next, record.events.back().reason,
               fmt::format("node {}: {}", name, record.events.back().message),
               now);
      changed.emplace(job, std::move(next));
    }
  }
  const std::vector<const NodeRecord*> nodes = {&record};
  LOCKSTEP_RETURN_IF_ERROR(CommitJobs(std::move(changed),
                                      Remember(request, response, now), now,
                                      news ? nodes : decltype(nodes)()));
  if (news) {
    members_.Apply(record);
    if (ends_quarantine) members_.EndQuarantine(name);
    unsaved_nodes_.erase(name);
    LOG_INFO("node {}: {}", name, record.events.back().message);
  }
  capacity_changed_ = true;
  room_made_ = now.mono;
  TouchJobsOf(name);
  Reconcile(now);
  return response;
}

StatusOr<std::string> Coordinator::DrainNode(const RequestKey& request,
                                             const NodeName& name, Drain drain,
                                             const EncodeNode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member, FindMember(name));
  const Time now = clock_->Now();
  drain.time = now.wall;
  return AnswerNode(request,
                    lockstep::DrainNode(member->Record(), std::move(drain)),
                    encode, now);
}

StatusOr<std::string> Coordinator::UndrainNode(const RequestKey& request,
                                               const NodeName& name,
                                               const EncodeNode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member, FindMember(name));
  const Time now = clock_->Now();
  // Quarantine is soft, and comes back where two daemons still take turns.
  const bool quarantined = !member->quarantine.empty();
  // So is what it failed at: an operator says that all is well.
  strikes_.Clear(name);
  return AnswerNode(request,
                    lockstep::UndrainNode(member->Record(), quarantined,
                                          request.client, now.wall),
                    encode, now, quarantined);
}

StatusOr<std::string> Coordinator::ApproveNode(const RequestKey& request,
                                               const NodeName& name,
                                               const EncodeNode& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member, FindMember(name));
  const Time now = clock_->Now();
  return AnswerNode(
      request,
      lockstep::ApproveNode(member->Record(), request.client, now.wall), encode,
      now);
}

StatusOr<std::string> Coordinator::ForgetNode(const RequestKey& request,
                                              const NodeName& name,
                                              const EncodeJobs& encode) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(auto answer, FindAnswer(request));
  if (answer) return *std::move(answer);
  LOCKSTEP_ASSIGN_OR_RETURN(const Member* member, FindMember(name));
  if (member->state == NodeState::kReady) {
    return WithReason(
        FailedPrecondition("node {} is connected: stop its daemon first, or "
                           "drain the node",
                           name),
        "NODE_CONNECTED");
  }
  const Time now = clock_->Now();
  NodeSoft& soft = nodes_[name];
  const std::vector<JobName> jobs(soft.jobs.begin(), soft.jobs.end());
  std::string response = encode(jobs);
  // The node's own events go with it.
  std::map<JobName, Job> changed;
  for (const JobName& job : jobs) {
    Job next = *jobs_.at(job).job;
    AddEvent(&next, Reason::kNodeForgotten,
             fmt::format("node {}: given up by {}, what it still ran counts "
                         "as lost",
                         name, request.client),
             now);
    changed.emplace(job, std::move(next));
  }
  LOCKSTEP_RETURN_IF_ERROR(CommitJobs(
      std::move(changed), Remember(request, response, now), now, {}, {name}));
  LOG_WARN("node {}: given up by {}; {} jobs had something there", name,
           request.client, jobs.size());
  members_.Forget(name);
  refused_by_.erase(name);
  unknown_nodes_.erase(name);
  inquiries_.erase(name);
  strikes_.Clear(name);
  unsaved_nodes_.erase(name);
  if (soft.session) {
    // Silent, not gone: should it be heard of again, it registers as new.
    sessions_.erase(soft.session->id);
    soft.session->link->Close(
        Unavailable("node {} was given up by {}: "
                    "register again",
                    name, request.client));
    soft.session.reset();
  }
  soft.gangs.clear();
  soft.reported = false;
  JudgeNewcomer(name, now);
  capacity_changed_ = true;
  for (const JobName& job : jobs) Touch(job);
  Reconcile(now);
  return response;
}

// ---- What happens to nodes by itself ---------------------------------------

void Coordinator::NoteNode(const NodeName& node) {
  if (members_.Find(node) != nullptr) unsaved_nodes_.insert(node);
}

void Coordinator::StoreNodes() {
  // A store that is in trouble is left to its probe.
  if (unsaved_nodes_.empty() || !store_healthy_) return;
  std::vector<NodeRecord> records;
  for (const NodeName& name : unsaved_nodes_) {
    if (records.size() == kMaxNodesOfCommit) break;
    if (const Member* member = members_.Find(name)) {
      records.push_back(member->Record());
    }
  }
  StoreBatch batch;
  for (const NodeRecord& record : records) batch.nodes.push_back(&record);
  if (!Commit(&batch).ok()) return;
  hub_->Publish(version_, {});
  for (const NodeRecord& record : records) {
    unsaved_nodes_.erase(record.info.name);
  }
}

}  // namespace lockstep
