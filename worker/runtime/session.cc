#include "worker/runtime/session.h"

#include <algorithm>
#include <utility>

#include "worker/runtime/peer_lost.h"
#include "worker/runtime/session_impl.h"

namespace lockstep::worker::runtime {

StatusOr<std::unique_ptr<Session>> Session::Join(SessionOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(impl->Join());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

const SessionIdentity& Session::identity() const { return impl_->identity_; }

bool Session::chief() const { return impl_->membership_.place == 0; }
const Membership& MembershipOf(const Session& session) {
  return session.impl_->membership_;
}
Status CheckMembership(Session* session) {
  return session->impl_->CheckMembership();
}

Status Session::Form(const ConfigMap& config) { return impl_->Form(config); }
collective::Communicator* Session::communicator() {
  return impl_->communicator();
}
StatusOr<std::unique_ptr<Reducer>> Session::MakeReducer(
    const std::vector<Parameter>& parameters, const ReducerOptions& options) {
  return impl_->MakeReducer(parameters, options);
}
const std::string& Session::reduction_plan() const {
  static const std::string none;
  return impl_->planner_ ? impl_->planner_->text() : none;
}
Status Session::AllReduceSum(std::span<double> values) {
  LOCKSTEP_ASSIGN_OR_RETURN(SmallCollectives * all, impl_->collectives());
  return all->AllReduceSum(values);
}
Status Session::Broadcast(std::string* bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(SmallCollectives * all, impl_->collectives());
  return all->Broadcast(bytes);
}
Status Session::Barrier() {
  LOCKSTEP_ASSIGN_OR_RETURN(SmallCollectives * all, impl_->collectives());
  return all->Barrier();
}

StatusOr<bool> Session::AwaitSpace(const Status& mine) {
  return impl_->AwaitSpace(mine);
}

bool CanRecover(const Session& session, const Status& error) {
  return session.impl_->CanRecover(error);
}
StatusOr<Recovered> Recover(Session* session, const Status& lost,
                            Reducer* reducer, const ReplicaState& state) {
  return session->impl_->Recover(lost, reducer, state);
}

void Session::Enter(Phase phase) { impl_->progress_->Enter(phase); }
Progress* Session::progress() { return impl_->progress_.get(); }
void Session::Publish() { impl_->progress_->Publish(); }
void Session::Report(std::string_view name, double value) {
  impl_->progress_->SetValue(name, value);
  impl_->progress_->Publish();
}
void Session::ReportArtifact(const std::string& name, const std::string& path) {
  v1::RankReport report;
  report.set_artifact_name(name);
  report.set_artifact_path(path);
  impl_->Send(report);
}
void Session::ReportEvent(const std::string& sentence, EventKind kind) {
  impl_->SendEvent(sentence, kind);
}
void Session::ReportCheckpoint(const CheckpointOrder& order,
                               const std::string& path, int64_t bytes) {
  v1::RankReport report;
  report.set_checkpoint_step(order.step);
  report.set_checkpoint_path(path);
  report.set_checkpoint_bytes(bytes);
  for (const uint32_t id : order.directives) {
    report.set_directive_done(std::max(report.directive_done(), id));
  }
  impl_->checkpoints_.Saved(order.step);
  impl_->Send(report);
}
void Session::ReportResumed(int64_t step) {
  v1::RankReport report;
  report.set_has_resumed_step(true);
  report.set_resumed_step(step);
  impl_->Send(report);
}
void Session::RequestDrain() { impl_->orders_.RequestDrain(); }

int Session::Leave(const Status& status) { return impl_->Leave(status); }
bool Session::IsVictim(const Status& status) {
  return ReasonOf(status) == kReasonPeerLost;
}
int Session::ExitCodeFor(const Status& status) {
  if (status.ok()) return 0;
  return IsVictim(status) ? kExitPeerLost : kExitFailed;
}

}  // namespace lockstep::worker::runtime
