#include "worker/runtime/session_impl.h"

#include <signal.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/base/sha256.h"
#include "worker/collective/handshake.h"
#include "worker/collective/lost_peers.h"
#include "worker/runtime/fingerprint.h"
#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {
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
constexpr int kReasonNumberRecovered = 99;

int ReasonNumber(const std::string& reason) {
  if (reason == collective::kReasonConfigMismatch ||
      reason == collective::kReasonOtherSpec ||
      reason == collective::kReasonWrongJobKey ||
      reason == collective::kReasonOtherGeneration) {
    return kReasonNumberConfigMismatch;
  }
  if (reason == kReasonCheckpointFailed) return kReasonNumberCheckpointFailed;
  if (reason == kReasonNoCheckpoint) return kReasonNumberNoCheckpoint;
  if (reason == kReasonOutputMissing) return kReasonNumberOutputMissing;
  return reason == "DIVERGED" ? kReasonNumberDiverged : 0;
}

std::vector<int> AwayRanksOf(const v1::RankWelcome& welcome) {
  return {welcome.away_ranks().begin(), welcome.away_ranks().end()};
}

}  // namespace

Session::Impl::~Impl() {
  // The link's thread may end the generation: it stops first.
  link_.reset();
  DropCommunicator();
}

void Session::Impl::DropCommunicator() {
  collectives_.reset();
  communicator_.Drop();
}

Status Session::Impl::Join() {
  // A peer that dies must be an error of a call, not this process's death.
  ::signal(SIGPIPE, SIG_IGN);
  LOCKSTEP_ASSIGN_OR_RETURN(std::optional<rank_link::RankIdentity> identity,
                            rank_link::RankIdentityFromEnvironment());
  std::string page;
  if (identity) {
    rank_link::RankLinkCallbacks callbacks;
    callbacks.abort = [this](const std::string& why) {
      communicator_.EndGeneration(why);
    };
    callbacks.recover = [this](const v1::RankWelcome& welcome) {
      communicator_.Announce(welcome.recovery(), AwayRanksOf(welcome));
    };
    callbacks.tick = [this] { communicator_.Tick(MonotonicNow()); };
    callbacks.directive = [this](const v1::RankDirective& directive) {
      orders_.Add(directive);
    };
    LOCKSTEP_ASSIGN_OR_RETURN(
        link_,
        rank_link::RankLink::Connect(*std::move(identity), std::move(callbacks),
                                     MonotonicNow() + options_.join_timeout));
    const v1::RankWelcome welcome = link_->welcome();
    TakeWelcome(welcome);
    page = welcome.page_path();
  } else {
    identity_.output_directory = options_.local_output_directory;
    identity_.checkpoint_interval_steps = options_.local_checkpoint_interval;
    identity_.checkpoint_keep = options_.local_checkpoint_keep;
    identity_.lineage = {{identity_.generation, 0}};
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      progress_, Progress::Create(page, identity_.rank, identity_.generation,
                                  communicator_.wait_page()));
  return OkStatus();
}

void Session::Impl::TakeWelcome(const v1::RankWelcome& welcome) {
  identity_.local = false;
  identity_.job = link_->key().job;
  identity_.generation = link_->key().generation;
  identity_.rank = welcome.rank();
  identity_.world_size = std::max(1, welcome.world_size());
  membership_ = MembershipIn(welcome, identity_.world_size, identity_.rank);
  identity_.local_rank = welcome.local_rank();
  identity_.local_size = std::max(1, welcome.local_size());
  identity_.attempt = std::max(1, welcome.attempt());
  identity_.cpus = welcome.cpus();
  identity_.gpus.assign(welcome.gpus().begin(), welcome.gpus().end());
  identity_.output_directory = welcome.output_directory();
  identity_.checkpoint_interval_steps =
      std::max<int64_t>(0, welcome.checkpoint_interval_steps());
  identity_.checkpoint_keep =
      welcome.checkpoint_keep() > 0 ? welcome.checkpoint_keep() : 3;
  for (const v1::RankLineage& entry : welcome.lineage()) {
    identity_.lineage.push_back({entry.generation(), entry.start_step()});
  }
  identity_.resume = {.known_generation = welcome.known_checkpoint_generation(),
                      .known_step = welcome.known_checkpoint_step(),
                      .restore_step = welcome.restore_step(),
                      .from_start = welcome.restore_from_start()};
  identity_.recovering = welcome.recovery() > 0;
  kept_.recovery = welcome.recovery();
  kept_.has_state = !identity_.recovering;
}

Membership MembershipIn(const v1::RankWelcome& welcome, int world_size,
                        int rank) {
  return MembersWithout(AwayRanksOf(welcome), world_size, rank);
}

Status Session::Impl::Form(const ConfigMap& config) {
  progress_->Enter(Phase::kForming);
  DropCommunicator();
  // Of an earlier generation: no reducer of this one asks for it.
  if (addresses_ && addresses_->kept() &&
      addresses_->kept()->AwaitFree(MonotonicNow())) {
    addresses_->kept().reset();
  }
  kept_.config = config;
  kept_.config["recoverable"] = options_.recoverable ? "yes" : "no";
  if (options_.elastic) kept_.config["elastic"] = "yes";
  kept_.elastic = options_.elastic && options_.recoverable &&
                  link_ != nullptr && identity_.world_size > 1;
  kept_.elastic_over_nccl = kept_.elastic && options_.backend == "nccl";
  LOCKSTEP_RETURN_IF_ERROR(Plan());
  if (identity_.recovering) return FormRecovering(OkStatus());
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<collective::Communicator> communicator,
      FormRanks(link_.get(), MonotonicNow() + options_.forming_timeout));
  ReportPlan();
  const Status adopted =
      communicator_.Adopt(std::move(communicator), membership_, 0);
  collectives_.emplace(communicator_.get(), progress_.get(),
                       options_.operation_timeout);
  LOCKSTEP_RETURN_IF_ERROR(adopted);
  // The order of the sums shapes the numbers like the rest.
  ConfigMap all = kept_.config;
  if (const std::string plan = this->communicator()->ReductionPlan();
      !plan.empty() && !kept_.elastic) {
    all["reduction plan"] = plan;
  }
  fingerprint_ = Fingerprint(all);
  if (link_) {
    LOCKSTEP_RETURN_IF_ERROR(
        Compare(all, MonotonicNow() + options_.forming_timeout));
    kept_.recoverable = options_.recoverable;
    link_->SendJoined(0, kept_.recoverable, kept_.elastic);
    LOCKSTEP_RETURN_IF_ERROR(
        MarkPeerLost(link_->WaitForGo(MonotonicNow() + options_.go_timeout)));
    communicator_.SetTrains();
  }
  progress_->Enter(Phase::kOther);
  return OkStatus();
}

std::string Session::Impl::Label() const {
  std::string label =
      fmt::format("job {} g{}", identity_.job, identity_.generation);
  if (kept_.recovery > 0) label += fmt::format(" r{}", kept_.recovery);
  // Its errors name places.
  if (!membership_.complete()) {
    label += fmt::format(" of rank{} {}", membership_.size() == 1 ? "" : "s",
                         fmt::join(membership_.members, ", "));
  }
  return label;
}

std::string Session::Impl::Key() const {
  const std::string key = link_->welcome().job_key();
  if (kept_.recovery == 0) return key;
  const Sha256Mac mac =
      HmacSha256(key, fmt::format("recovery {}", kept_.recovery));
  return std::string(mac.begin(), mac.end());
}

StatusOr<std::unique_ptr<collective::Communicator>> Session::Impl::FormRanks(
    collective::RendezvousStore* store, MonoTime deadline) {
  collective::CommunicatorOptions options;
  options.backend = options_.backend;
  options.rank = store != nullptr ? membership_.place : 0;
  options.size = store != nullptr ? membership_.size() : 1;
  if (kept_.elastic && options.size == 1 && !kept_.elastic_over_nccl) {
    options.backend = "self";
  }
  options.label = store != nullptr
                      ? Label()
                      : fmt::format("job {} g{} rank {}", identity_.job,
                                    identity_.generation, identity_.rank);
  options.operation_timeout = options_.operation_timeout;
  options.forming_deadline = deadline;
  options.module_dir = options_.module_dir;
  options.rendezvous = store;
  // The daemon shows a rank its own GPUs only; a program without one has what
  // CUDA shows it.
  // An elastic job adds its shards up in the host's memory, and needs none,
  // unless it asks for nccl.
  const bool has_gpu = link_ == nullptr || !identity_.gpus.empty();
  const bool needs_gpu = !kept_.elastic || kept_.elastic_over_nccl;
  options.device = has_gpu && needs_gpu ? 0 : -1;
  plan_reports_.choice()->clear();
  if (addresses_ == nullptr) {
    auto reserved = collective::AddressRange::Reserve();
    if (reserved.ok()) addresses_ = *std::move(reserved);
  }
  options.addresses = addresses_.get();
  if (store != nullptr) {
    options.cancelled = communicator_.BeginForming(kept_.recovery);
  }
  if (link_) {
    options.key = Key();
    const std::string address = link_->welcome().bind_address();
    if (!address.empty()) options.bind_address = address;
  }
  StatusOr<std::unique_ptr<collective::Communicator>> formed =
      FormByPlan(std::move(options));
  // Without peers it names them wrongly, and none is lost.
  if (!formed.ok() && store == nullptr) {
    return Annotate(
        formed.status(),
        fmt::format("rank {}, before it joins the others", identity_.rank));
  }
  if (!formed.ok()) return MarkPeerLost(formed.status());
  plan_reports_.Formed((*formed)->Plan());
  return formed;
}

Status Session::Impl::Compare(const ConfigMap& config, MonoTime deadline) {
  collective::HandshakeOptions options;
  options.label = Label();
  options.generation = CommunicatorNumber(identity_.generation, kept_.recovery);
  options.spec_hash = link_->welcome().spec_hash();
  options.key = Key();
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
  } else if (kind == EventKind::kRecovered) {
    report.set_event_reason(kReasonNumberRecovered);
  }
  Send(report);
}

int Session::Impl::Leave(const Status& result) {
  const Status status = result.ok() ? LastCheckpoint() : result;
  if (result.ok() && !status.ok()) {
    LOG_ERROR("{} rank {}: {}", Label(), identity_.rank, Message(status));
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
    for (const int peer :
         membership_.RanksAt(collective::LostPeersOf(status))) {
      if (report.lost_peers_size() < kMostLostPeers) {
        report.add_lost_peers(peer);
      }
    }
    Send(report);
    // Where only the checkpoint failed, the other ranks have done their work.
    if (!result.ok()) communicator_.Abort(Message(status));
  }
  if (link_) {
    const Duration time = status.ok() ? kGoodbyeTime : kExitMessageTimeout;
    if (Status sent = link_->Flush(MonotonicNow() + time); !sent.ok()) {
      LOG_WARN("{} rank {}: {}", Label(), identity_.rank, Message(sent));
    }
  }
  return ExitCodeFor(status);
}

}  // namespace lockstep::worker::runtime
