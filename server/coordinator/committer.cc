#include "server/coordinator/committer.h"

#include <set>
#include <utility>

#include "common/base/logging.h"
#include "server/core/assignments.h"

namespace lockstep::server {
namespace {

// Written in one commit; the rest waits for the next tick.
constexpr size_t kMaxNodesOfCommit = 100;
// How often a store that could not write is tried.
constexpr Duration kProbeInterval = std::chrono::seconds(1);
constexpr Duration kForgetInterval = std::chrono::minutes(10);

}  // namespace

bool Committer::MayForgetAnswers(Time now) const {
  return now.wall - last_forget_ > kForgetInterval;
}

Status Committer::CommitJobs(std::map<JobName, Job> changed,
                             std::optional<AnsweredRequest> request, Time now,
                             const std::vector<const NodeRecord*>& nodes,
                             const std::vector<NodeName>& forget_nodes) {
  StoreWriter* const writer = parts_.writer;
  std::vector<std::shared_ptr<const Job>> jobs;
  for (auto& [name, job] : changed) {
    job.resource_version = writer->version() + 1;
    if (IsFinal(job.state)) {
      // The price of the day stays with the job.
      job.bill = parts_.billing->BillOf(job, now);
    }
    jobs.push_back(std::make_shared<const Job>(std::move(job)));
  }
  StoreBatch batch;
  batch.jobs = jobs;
  batch.nodes = nodes;
  batch.forget_nodes = forget_nodes;
  batch.request = std::move(request);
  if (MayForgetAnswers(now)) {
    batch.forget_requests_before =
        now.wall - parts_.options->retention.requests;
  }
  LOCKSTEP_RETURN_IF_ERROR(writer->Commit(&batch));
  if (batch.forget_requests_before) last_forget_ = now.wall;
  for (const auto& job : jobs) Apply(job, now);
  parts_.hub->Publish(writer->version(), jobs);
  return OkStatus();
}

void Committer::Apply(const std::shared_ptr<const Job>& job, Time now) {
  const JobName& name = job->spec.name;
  const JobRegistry::Applied applied = parts_.state->jobs.Apply(job, now);
  if (parts_.options->observer != nullptr) {
    parts_.options->observer->OnJob(applied.before.get(), *job, now);
  }
  if (applied.new_generation || IsFinal(job->state)) {
    parts_.faults->ForgetGeneration(name);
    parts_.rendezvous->Clear(name);
  } else if (applied.before->recovery < job->recovery) {
    parts_.rendezvous->Clear(name);
  }
  Agenda& agenda = parts_.state->agenda;
  if (applied.left_queue) agenda.ahead_changed = true;
  if (job->state == JobState::kQueued || job->state == JobState::kPlacing) {
    agenda.capacity_changed = true;
  }
  if (IsFinal(job->state)) {
    parts_.faults->ForgetJob(job->uid);
    parts_.hub->ForgetProgress(name);
  }
  ApplyToNodes(applied.before.get(), *job, now);
}

void Committer::ApplyToNodes(const Job* before, const Job& job, Time now) {
  Agenda& agenda = parts_.state->agenda;
  std::set<NodeName> involved = NodesOf(job);
  std::set<NodeName> holding;
  for (const Hold& hold : job.holds) holding.insert(hold.node);
  if (before != nullptr) {
    for (const Hold& hold : before->holds) involved.insert(hold.node);
    if (before->holds.size() != job.holds.size()) {
      agenda.capacity_changed = true;
    }
    // A generation that was refused took no room: two jobs would wake each
    // other for ever.
    if (before->holds.size() > job.holds.size() && before->cluster) {
      agenda.room_made = now.mono;
    }
  }
  involved.insert(holding.begin(), holding.end());
  for (const NodeName& node : involved) {
    std::set<JobName>& jobs = parts_.state->nodes.At(node).jobs;
    if (holding.contains(node)) {
      jobs.insert(job.spec.name);
    } else {
      jobs.erase(job.spec.name);
    }
  }
  agenda.nodes.merge(NodesToUpdate(before, job));
}

Status Committer::CommitDeletion(const std::vector<JobName>& names,
                                 std::optional<AnsweredRequest> request) {
  StoreBatch batch;
  batch.delete_jobs = names;
  batch.request = std::move(request);
  LOCKSTEP_RETURN_IF_ERROR(parts_.writer->Commit(&batch));
  for (const JobName& name : names) {
    const std::string uid = parts_.state->jobs.At(name).job->uid;
    parts_.state->agenda.jobs.erase(name);
    // A node that is away may still have something: it is disowned then.
    parts_.state->jobs.Delete(name);
    const auto& on_deleted = parts_.options->retention.on_deleted;
    if (on_deleted) on_deleted(uid);
    parts_.state->nodes.DropWork(uid);
  }
  parts_.hub->PublishDeleted(parts_.writer->version(), names);
  return OkStatus();
}

Status Committer::CommitNode(const NodeRecord& record) {
  StoreBatch batch;
  batch.nodes.push_back(&record);
  return parts_.writer->Commit(&batch);
}

void Committer::StoreUnsavedNodes() {
  std::set<NodeName>& unsaved = parts_.state->agenda.unsaved_nodes;
  // A store that is in trouble is left to ProbeStore.
  if (unsaved.empty() || !parts_.writer->healthy()) return;
  std::vector<NodeRecord> records;
  for (const NodeName& name : unsaved) {
    if (records.size() == kMaxNodesOfCommit) break;
    if (const Member* member = parts_.state->members.Find(name)) {
      records.push_back(member->Record());
    }
  }
  StoreBatch batch;
  for (const NodeRecord& record : records) batch.nodes.push_back(&record);
  if (!parts_.writer->Commit(&batch).ok()) return;
  parts_.hub->Publish(parts_.writer->version(), {});
  for (const NodeRecord& record : records) unsaved.erase(record.info.name);
}

void Committer::ProbeStore(Time now) {
  if (parts_.writer->healthy() || now.mono - last_probe_ < kProbeInterval) {
    return;
  }
  last_probe_ = now.mono;
  StoreBatch probe;
  if (!parts_.writer->Commit(&probe).ok()) return;
  parts_.hub->Publish(parts_.writer->version(), {});
}

void Committer::ForgetOldAnswers(Time now) {
  if (parts_.writer->answers().empty() || !MayForgetAnswers(now)) return;
  (void)CommitJobs({}, std::nullopt, now);
}

}  // namespace lockstep::server
