#include "worker/runtime/session_impl.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/collective/handshake.h"
#include "worker/collective/lost_peers.h"
#include "worker/runtime/fingerprint.h"
#include "worker/runtime/peer_lost.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kExitMessageTimeout = milliseconds(300);
constexpr Duration kGoodbyeTime = seconds(5);
// Of one report: a message of the link has 64 KiB.
constexpr int kMostLostPeers = 1024;
// lockstep.v1.Reason.
constexpr int kReasonNumberOutputMissing = 9;
constexpr int kReasonNumberNoCheckpoint = 10;
constexpr int kReasonNumberOutputFull = 11;
constexpr int kReasonNumberCheckpointDamaged = 30;
constexpr int kReasonNumberConfigMismatch = 53;
constexpr int kReasonNumberDiverged = 54;
constexpr int kReasonNumberCheckpointFailed = 91;

int ReasonNumber(const std::string& reason) {
  if (reason == kReasonConfigMismatch || reason == kReasonOtherSpec ||
      reason == kReasonWrongJobKey || reason == kReasonOtherGeneration) {
    return kReasonNumberConfigMismatch;
  }
  if (reason == kReasonCheckpointFailed) return kReasonNumberCheckpointFailed;
  if (reason == kReasonNoCheckpoint) return kReasonNumberNoCheckpoint;
  if (reason == kReasonOutputMissing) return kReasonNumberOutputMissing;
  return reason == "DIVERGED" ? kReasonNumberDiverged : 0;
}

}  // namespace

Session::Impl::~Impl() {
  // The link's thread calls OnAbort: it ends first.
  link_.reset();
  DropCommunicator();
}

void Session::Impl::DropCommunicator() {
  std::unique_ptr<Communicator> dropped;
  MutexLock lock(&mu_);
  dropped = std::move(communicator_);
  communicator_view_ = nullptr;
  collectives_.reset();
}

void Session::Impl::OnAbort(const std::string& why) {
  MutexLock lock(&mu_);
  aborted_ = true;
  abort_reason_ = why;
  if (communicator_) communicator_->Abort(why);
}

Status Session::Impl::Join() {
  // A peer that dies must be an error of a call, not this process's death.
  ::signal(SIGPIPE, SIG_IGN);
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<RankIdentity> identity,
                            RankIdentityFromEnvironment());
  std::string page;
  if (identity) {
    RankLinkCallbacks callbacks;
    callbacks.abort = [this](const std::string& why) { OnAbort(why); };
    callbacks.directive = [this](const v1::RankDirective& directive) {
      MutexLock lock(&mu_);
      directives_.push_back(directive);
    };
    LOCKSTEP_ASSIGN_OR_RETURN(
        link_, RankLink::Connect(*std::move(identity), std::move(callbacks),
                                 MonotonicNow() + options_.join_timeout));
    TakeWelcome(link_->welcome());
    page = link_->welcome().page_path();
  } else {
    output_directory_ = options_.local_output_directory;
    checkpoint_interval_ = options_.local_checkpoint_interval;
    checkpoint_keep_ = options_.local_checkpoint_keep;
    lineage_ = {{generation_, 0}};
  }
  LOCKSTEP_ASSIGN_OR_RETURN(progress_,
                            Progress::Create(page, rank_, generation_));
  return OkStatus();
}

void Session::Impl::TakeWelcome(const v1::RankWelcome& welcome) {
  job_ = link_->key().job;
  generation_ = link_->key().generation;
  rank_ = welcome.rank();
  world_size_ = std::max(1, welcome.world_size());
  local_rank_ = welcome.local_rank();
  local_size_ = std::max(1, welcome.local_size());
  attempt_ = std::max(1, welcome.attempt());
  cpus_ = welcome.cpus();
  gpus_.assign(welcome.gpus().begin(), welcome.gpus().end());
  output_directory_ = welcome.output_directory();
  checkpoint_interval_ =
      std::max<int64_t>(0, welcome.checkpoint_interval_steps());
  checkpoint_keep_ =
      welcome.checkpoint_keep() > 0 ? welcome.checkpoint_keep() : 3;
  for (const v1::RankLineage& entry : welcome.lineage()) {
    lineage_.push_back({entry.generation(), entry.start_step()});
  }
  resume_.known_generation = welcome.known_checkpoint_generation();
  resume_.known_step = welcome.known_checkpoint_step();
  resume_.restore_step = welcome.restore_step();
  resume_.from_start = welcome.restore_from_start();
}

Status Session::Impl::Form(const ConfigMap& config) {
  progress_->Enter(Phase::kForming);
  DropCommunicator();
  LOCKSTEP_RETURN_IF_ERROR(Plan());
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                            FormRanks());
  ReportPlan();
  LOCKSTEP_RETURN_IF_ERROR(Adopt(std::move(communicator)));
  // The order of the sums shapes the numbers like the rest.
  ConfigMap all = config;
  if (const std::string plan = this->communicator()->ReductionPlan();
      !plan.empty()) {
    all["reduction plan"] = plan;
  }
  fingerprint_ = Fingerprint(all);
  if (link_) {
    LOCKSTEP_RETURN_IF_ERROR(
        Compare(all, MonotonicNow() + options_.forming_timeout));
    link_->SendJoined();
    LOCKSTEP_RETURN_IF_ERROR(
        MarkPeerLost(link_->WaitForGo(MonotonicNow() + options_.go_timeout)));
  }
  progress_->Enter(Phase::kOther);
  return OkStatus();
}

StatusOr<std::unique_ptr<Communicator>> Session::Impl::FormRanks() {
  CommunicatorOptions options;
  options.backend = options_.backend;
  options.rank = rank_;
  options.size = world_size_;
  options.label = Label();
  options.operation_timeout = options_.operation_timeout;
  options.forming_deadline = MonotonicNow() + options_.forming_timeout;
  options.module_dir = options_.module_dir;
  options.rendezvous = link_.get();
  // The daemon shows a rank its own GPUs only; a program without one has what
  // CUDA shows it.
  options.device = link_ != nullptr && gpus_.empty() ? -1 : 0;
  choice_.clear();
  options.choice = &choice_;
  if (addresses_ == nullptr) {
    auto reserved = AddressRange::Reserve();
    if (reserved.ok()) addresses_ = *std::move(reserved);
  }
  options.addresses = addresses_.get();
  if (link_) {
    options.key = link_->welcome().job_key();
    if (!link_->welcome().bind_address().empty()) {
      options.bind_address = link_->welcome().bind_address();
    }
  }
  StatusOr<std::unique_ptr<Communicator>> formed =
      FormByPlan(std::move(options));
  if (!formed.ok()) return MarkPeerLost(formed.status());
  formed_plan_ = (*formed)->Plan();
  return formed;
}

Status Session::Impl::Adopt(std::unique_ptr<Communicator> communicator) {
  MutexLock lock(&mu_);
  communicator_ = std::move(communicator);
  communicator_view_ = communicator_.get();
  collectives_.emplace(communicator_view_, progress_.get(),
                       options_.operation_timeout);
  // Told while it formed: nobody could abort it then.
  if (aborted_) {
    communicator_->Abort(abort_reason_);
    return MarkPeerLost(Aborted("{}", abort_reason_));
  }
  return OkStatus();
}

Status Session::Impl::Compare(const ConfigMap& config, MonoTime deadline) {
  HandshakeOptions options;
  options.label = Label();
  options.generation = generation_;
  options.spec_hash = link_->welcome().spec_hash();
  options.key = link_->welcome().job_key();
  options.config = config;
  return MarkPeerLost(Handshake(communicator(), options, deadline));
}

StatusOr<SmallCollectives*> Session::Impl::collectives() {
  if (collectives_) return &*collectives_;
  return FailedPrecondition("collectives need a formed session");
}

void Session::Impl::Send(const v1::RankReport& report) {
  if (link_) link_->Report(report);
}

void Session::Impl::SendEvent(const std::string& sentence, EventKind kind) {
  v1::RankReport report;
  report.set_event(sentence);
  if (kind == EventKind::kOutputFull) {
    report.set_event_reason(kReasonNumberOutputFull);
  } else if (kind == EventKind::kCheckpointDamaged) {
    report.set_event_reason(kReasonNumberCheckpointDamaged);
  }
  Send(report);
}

int Session::Impl::Leave(const Status& result) {
  const Status status = result.ok() ? LastCheckpoint() : result;
  if (result.ok() && !status.ok()) {
    LOG_ERROR("{} rank {}: {}", Label(), rank_, Message(status));
  }
  progress_->SettleHeldBack(Duration(0));
  progress_->Enter(Phase::kFinished);
  progress_->Publish();
  ReportChoice("");
  if (!status.ok()) {
    v1::RankReport report;
    report.set_failure(Message(status));
    report.set_victim(IsVictim(status));
    report.set_failure_reason(ReasonNumber(ReasonOf(status)));
    for (const int peer : LostPeersOf(status)) {
      if (report.lost_peers_size() < kMostLostPeers) {
        report.add_lost_peers(peer);
      }
    }
    Send(report);
    MutexLock lock(&mu_);
    // The other ranks have done all they had to, where it is only that.
    if (communicator_ && !result.ok()) communicator_->Abort(Message(status));
  }
  if (link_) {
    const Duration time = status.ok() ? kGoodbyeTime : kExitMessageTimeout;
    if (Status sent = link_->Flush(MonotonicNow() + time); !sent.ok()) {
      LOG_WARN("{} rank {}: {}", Label(), rank_, Message(sent));
    }
  }
  return ExitCodeFor(status);
}

}  // namespace lockstep
