#include "tests/simulation/sim_store.h"

#include <fmt/format.h>

#include "server/store/job_rows.h"
#include "server/store/record.h"

namespace lockstep::simulation {
namespace {

CommitPoint PointOf(const server::StoreBatch& batch) {
  if (!batch.delete_jobs.empty()) return CommitPoint::kDeletion;
  if (batch.request) {
    return batch.jobs.empty() && batch.nodes.empty() &&
                   batch.forget_nodes.empty()
               ? CommitPoint::kAnswer
               : CommitPoint::kCommand;
  }
  if (!batch.jobs.empty()) return CommitPoint::kDecision;
  return batch.nodes.empty() ? CommitPoint::kProbe : CommitPoint::kNode;
}

}  // namespace

std::string_view Name(CommitPoint point) {
  switch (point) {
    case CommitPoint::kCommand:
      return "command";
    case CommitPoint::kAnswer:
      return "answer alone";
    case CommitPoint::kDecision:
      return "decision";
    case CommitPoint::kNode:
      return "node";
    case CommitPoint::kDeletion:
      return "deletion";
    case CommitPoint::kProbe:
      return "probe of the disk";
  }
  return "";
}

const server::Job* SimStore::Find(const std::string& job) const {
  const auto it = data_.jobs.find(job);
  return it == data_.jobs.end() ? nullptr : it->second.get();
}

bool SimStore::HasAnswered(const std::string& id) const {
  for (const char* client : {"user/ann", "user/root", "user/eve"}) {
    if (data_.requests.contains({client, id})) return true;
  }
  return false;
}

StatusOr<server::Job> SimStore::ReadBack(const server::Job& job) const {
  std::map<std::pair<server::JobTable, int64_t>, std::string> rows;
  for (server::JobRow& row : server::ChangesOf(nullptr, job).written) {
    rows[{row.table, row.number}] = std::move(row.record);
  }
  v1::StoredJob merged;
  for (const auto& [name, record] : rows) {
    LOCKSTEP_RETURN_IF_ERROR(server::AddRow(name.first, record, &merged));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(server::Job read, server::DecodeJob(merged));
  if (!(read == job)) {
    return Internal("job {} is another one after it was stored", job.spec.name);
  }
  return read;
}

StatusOr<server::StoreSnapshot> SimStore::Load() {
  if (bug_ == Bug::kLosesSyncedCommit && epoch_ > 0) data_ = before_;
  server::StoreSnapshot snapshot;
  snapshot.epoch = ++epoch_;
  snapshot.history = std::string(kHistoryDigits, 'a');
  epoch_starts_[epoch_] = {data_.version, fmt::format("{:032x}", epoch_)};
  snapshot.epoch_starts = epoch_starts_;
  snapshot.version = data_.version;
  for (const auto& [name, job] : data_.jobs) {
    LOCKSTEP_ASSIGN_OR_RETURN(server::Job read, ReadBack(*job));
    if (bug_ == Bug::kForgetsFinalState && before_final_.contains(name)) {
      read = *before_final_.at(name);
    }
    if (bug_ == Bug::kReusesGeneration && read.generation > 1 &&
        read.state == JobState::kPlacing) {
      --read.generation;
      read.lineage.pop_back();
      if (read.lineage.empty()) read.lineage = {{read.generation, 0}};
      read.lineage.back().generation = read.generation;
    }
    auto shared = std::make_shared<const server::Job>(std::move(read));
    snapshot.jobs.push_back(std::move(shared));
  }
  for (const auto& [name, node] : data_.nodes) {
    LOCKSTEP_ASSIGN_OR_RETURN(server::NodeRecord read,
                              server::DecodeNode(server::EncodeNode(node)));
    snapshot.nodes.push_back(std::move(read));
  }
  snapshot.deleted_jobs.assign(data_.deleted.begin(), data_.deleted.end());
  if (bug_ == Bug::kForgetsAnswers) return snapshot;
  for (const auto& [key, request] : data_.requests) {
    snapshot.requests.push_back(request);
  }
  return snapshot;
}

CommitFault SimStore::TakeFault(CommitPoint point) {
  if (full_) return CommitFault::kFail;
  if (armed_.fault == CommitFault::kNone) return CommitFault::kNone;
  if (armed_.point ? *armed_.point != point : armed_.skip-- > 0) {
    return CommitFault::kNone;
  }
  return std::exchange(armed_.fault, CommitFault::kNone);
}

Status SimStore::Commit(const server::StoreBatch& batch) {
  const CommitPoint point = PointOf(batch);
  const CommitFault fault = TakeFault(point);
  if (fault != CommitFault::kNone) listener_->OnFault(point, fault);
  if (fault == CommitFault::kFail) {
    return ResourceExhausted("the disk is full");
  }
  if (fault == CommitFault::kCrashBefore) throw CoordinatorCrash();
  if (batch.version != data_.version + 1) {
    return Internal("commit {} came after {}", batch.version, data_.version);
  }
  listener_->OnCommit(batch);
  Apply(batch);
  if (fault == CommitFault::kCrashAfter) throw CoordinatorCrash();
  return OkStatus();
}

void SimStore::Apply(const server::StoreBatch& batch) {
  if (bug_ == Bug::kLosesSyncedCommit) before_ = data_;
  data_.version = batch.version;
  for (const auto& job : batch.jobs) {
    auto& known = data_.jobs[job->spec.name];
    if (bug_ == Bug::kForgetsFinalState && known != nullptr &&
        IsFinal(job->state) && !IsFinal(known->state)) {
      before_final_[job->spec.name] = known;
    }
    known = job;
  }
  for (const server::NodeRecord* node : batch.nodes) {
    data_.nodes[node->info.name] = *node;
  }
  for (const JobName& name : batch.delete_jobs) {
    data_.jobs.erase(name);
    data_.deleted.insert(name);
  }
  for (const NodeName& name : batch.forget_nodes) data_.nodes.erase(name);
  for (const server::RequestName& name : batch.forget_requests) {
    data_.requests.erase({name.client, name.id});
  }
  if (batch.request) {
    data_.requests[{batch.request->client, batch.request->id}] = *batch.request;
  }
  if (batch.forget_requests_before) {
    std::erase_if(data_.requests, [&](const auto& entry) {
      return entry.second.time < *batch.forget_requests_before;
    });
  }
}

}  // namespace lockstep::simulation
