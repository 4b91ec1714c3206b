#include "tests/support/memory_store.h"

#include "common/base/random.h"
#include "server/store/record.h"

namespace lockstep {
namespace {

StatusOr<server::Job> Read(const MemoryStore::Rows& rows) {
  v1::StoredJob merged;
  for (const auto& [name, record] : rows) {
    LOCKSTEP_RETURN_IF_ERROR(AddRow(name.first, record, &merged));
  }
  return server::DecodeJob(merged);
}

// Only what changed, as on a disk.
Status Write(const std::shared_ptr<const server::Job>& job,
             MemoryStore::StoredRows* stored) {
  const bool known = stored->version.job != nullptr;
  server::JobChanges changes =
      ChangesOf(known ? &stored->version : nullptr, *job);
  for (const server::JobRowName& row : changes.removed) {
    if (stored->rows.erase({row.table, row.number}) == 1) continue;
    return Internal("row {} of {} is not there", row.number, Name(row.table));
  }
  for (server::JobRow& row : changes.written) {
    const auto [place, added] =
        stored->rows.try_emplace({row.table, row.number});
    place->second = std::move(row.record);
    if (added == row.is_new) continue;
    return Internal("row {} of {} is {}", row.number, Name(row.table),
                    added ? "not there" : "there already");
  }
  stored->version = {job, std::move(changes.numbers)};
  return OkStatus();
}

}  // namespace

StatusOr<server::StoreSnapshot> MemoryStore::Load() {
  MutexLock lock(&mu_);
  server::StoreSnapshot snapshot;
  snapshot.epoch = ++epoch_;
  snapshot.history = history_;
  snapshot.replaced_histories = replaced_;
  snapshot.generation_floor = generation_floor_;
  epoch_starts_[epoch_] = {version_, RandomHex(kHistoryDigits / 2)};
  snapshot.epoch_starts = epoch_starts_;
  snapshot.version = version_;
  for (const auto& [name, stored] : jobs_) {
    LOCKSTEP_ASSIGN_OR_RETURN(server::Job job, Read(stored.rows));
    snapshot.jobs.push_back(
        std::make_shared<const server::Job>(std::move(job)));
  }
  for (const auto& [name, bytes] : nodes_) {
    LOCKSTEP_ASSIGN_OR_RETURN(server::NodeRecord node,
                              server::DecodeNode(bytes));
    snapshot.nodes.push_back(std::move(node));
  }
  snapshot.deleted_jobs.assign(deleted_.begin(), deleted_.end());
  for (const auto& [key, bytes] : requests_) {
    LOCKSTEP_ASSIGN_OR_RETURN(server::AnsweredRequest request,
                              server::DecodeRequest(bytes));
    snapshot.requests.push_back(std::move(request));
  }
  return snapshot;
}

MemoryStore::Backup MemoryStore::MakeBackup() const {
  MutexLock lock(&mu_);
  return {version_, jobs_, nodes_, deleted_};
}

void MemoryStore::Restore(const Backup& backup) {
  MutexLock lock(&mu_);
  replaced_.push_back({history_, epoch_, backup.version});
  ++history_.back();
  generation_floor_ += 1000;
  epoch_starts_.clear();
  version_ = backup.version;
  jobs_ = backup.jobs;
  nodes_ = backup.nodes;
  deleted_ = backup.deleted;
  requests_.clear();
}

void MemoryStore::PutBack(const Backup& backup, uint64_t epochs) {
  MutexLock lock(&mu_);
  epoch_ = epochs;
  epoch_starts_.erase(epoch_starts_.upper_bound(epochs), epoch_starts_.end());
  version_ = backup.version;
  jobs_ = backup.jobs;
  nodes_ = backup.nodes;
  deleted_ = backup.deleted;
  requests_.clear();
}

Status MemoryStore::Commit(const server::StoreBatch& batch) {
  MutexLock lock(&mu_);
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  if (batch.version != version_ + 1) {
    return Internal("commit {} came after {}", batch.version, version_);
  }
  std::map<std::string, StoredRows> jobs;
  for (const auto& job : batch.jobs) {
    const std::string& name = job->spec.name;
    const auto known = jobs_.find(name);
    StoredRows& stored = jobs[name];
    if (known != jobs_.end()) stored = known->second;
    LOCKSTEP_RETURN_IF_ERROR(Write(job, &stored));
    const auto again = Read(stored.rows);
    if (!again.ok()) return Annotate(again.status(), "cannot be read again");
    if (!(*again == *job)) {
      return Internal("job {} is another one after it was stored", name);
    }
  }
  for (auto& [name, stored] : jobs) jobs_[name] = std::move(stored);
  for (const server::NodeRecord* node : batch.nodes) {
    const std::string bytes = EncodeNode(*node);
    const auto again = server::DecodeNode(bytes);
    if (!again.ok()) return Annotate(again.status(), "cannot be read again");
    if (!(*again == *node)) {
      return Internal("node {} is another one after it was stored",
                      node->info.name);
    }
    nodes_[node->info.name] = bytes;
  }
  for (const JobName& name : batch.delete_jobs) {
    jobs_.erase(name);
    deleted_.insert(name);
  }
  for (const NodeName& name : batch.forget_nodes) nodes_.erase(name);
  for (const server::RequestName& name : batch.forget_requests) {
    requests_.erase({name.client, name.id});
  }
  if (batch.request) {
    requests_[{batch.request->client, batch.request->id}] =
        EncodeRequest(*batch.request);
  }
  if (batch.forget_requests_before) {
    std::erase_if(requests_, [&](const auto& entry) {
      const auto request = server::DecodeRequest(entry.second);
      return request.ok() && request->time < *batch.forget_requests_before;
    });
  }
  version_ = batch.version;
  ++commits_;
  written_jobs_ += static_cast<int64_t>(batch.jobs.size());
  return OkStatus();
}

void MemoryStore::FailWith(Status status) {
  MutexLock lock(&mu_);
  failure_ = std::move(status);
}

int64_t MemoryStore::commits() const {
  MutexLock lock(&mu_);
  return commits_;
}

int64_t MemoryStore::written_jobs() const {
  MutexLock lock(&mu_);
  return written_jobs_;
}

}  // namespace lockstep
