#include "server/coordinator/store_writer.h"

#include <utility>

#include "common/base/logging.h"

namespace lockstep::server {

StatusOr<StoreSnapshot> StoreWriter::Load() {
  LOCKSTEP_ASSIGN_OR_RETURN(StoreSnapshot snapshot, store_->Load());
  version_ = snapshot.version;
  for (AnsweredRequest& request : std::exchange(snapshot.requests, {})) {
    answers_.Add(std::move(request));
  }
  return snapshot;
}

Status StoreWriter::Commit(StoreBatch* batch) {
  batch->version = version_ + 1;
  if (batch->request) {
    batch->forget_requests = answers_.Displaced(*batch->request);
  }
  const Time before = clock_->Now();
  const Status status = store_->Commit(*batch);
  const Duration took = clock_->Now().mono - before.mono;
  stats_.commit_seconds += ToSeconds(took);
  if (observer_ != nullptr) observer_->OnCommit(took, status.ok());
  ++stats_.commits;
  if (!status.ok()) {
    ++stats_.failed_commits;
    if (healthy_) {
      LOG_ERROR("the store cannot write, commands are refused until it can: {}",
                Message(status));
    }
    healthy_ = false;
    if (status.code() == StatusCode::kAborted) taken_over_ = status;
    return status;
  }
  if (!healthy_) LOG_INFO("the store can write again");
  healthy_ = true;
  version_ = batch->version;
  if (batch->forget_requests_before) {
    answers_.ForgetBefore(*batch->forget_requests_before);
  }
  for (const RequestName& name : batch->forget_requests) answers_.Forget(name);
  if (batch->request) answers_.Add(*std::exchange(batch->request, {}));
  return OkStatus();
}

}  // namespace lockstep::server
