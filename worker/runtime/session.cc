#include "worker/runtime/session.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <utility>

#include "common/base/logging.h"
#include "common/base/mutex.h"
#include "worker/collective/handshake.h"
#include "worker/rank_link/client.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kScratchBytes = 64 << 10;
constexpr uint64_t kMaxBroadcast = 64 << 20;
constexpr Duration kLastWordsTime = milliseconds(300);
constexpr Duration kGoodbyeTime = seconds(5);
// lockstep.v1.Reason.
constexpr int kReasonNumberConfigMismatch = 53;
constexpr int kReasonNumberDiverged = 54;

MonoTime Now() { return SystemClock().Now().mono; }

// FNV-1a.
uint64_t Fingerprint(const ConfigMap& config) {
  uint64_t hash = 0xcbf29ce484222325ull;
  auto add = [&hash](const std::string& text) {
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    }
    hash = (hash ^ 0xff) * 0x100000001b3ull;
  };
  for (const auto& [name, value] : config) {
    add(name);
    add(value);
  }
  // The control word carries the low bits.
  return hash ^ (hash >> 32);
}

int ReasonNumber(const std::string& reason) {
  if (reason == kReasonConfigMismatch || reason == kReasonOtherSpec ||
      reason == kReasonWrongJobKey || reason == kReasonOtherGeneration) {
    return kReasonNumberConfigMismatch;
  }
  return reason == "DIVERGED" ? kReasonNumberDiverged : 0;
}

DirectiveOp OpOf(v1::RankDirective::Kind kind) {
  switch (kind) {
    case v1::RankDirective::CHECKPOINT:
      return DirectiveOp::kCheckpoint;
    case v1::RankDirective::STOP:
      return DirectiveOp::kStop;
    default:  // Of a newer daemon; lite enums are open.
      return DirectiveOp::kNone;
  }
}

}  // namespace

// What of the process lives here; `generation_` is thrown away with its
// communicator.
class Session::Impl {
 public:
  explicit Impl(SessionOptions options) : options_(std::move(options)) {}
  ~Impl();

  Status Join();
  Status Form(const ConfigMap& config);
  StatusOr<std::unique_ptr<Reducer>> MakeReducer(
      const std::vector<Parameter>& parameters, const ReducerOptions& options);
  Status AllReduceSum(std::span<double> values);
  Status Broadcast(std::string* bytes);
  Status RunCollective(const Operation& operation);
  void Send(const v1::RankReport& report);
  int Leave(const Status& status);
  void OnAbort(const std::string& why);

  SessionOptions options_;
  std::string job_ = "local";
  uint64_t generation_ = 1;
  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int attempt_ = 1;
  double cpus_ = 0;
  std::vector<int> gpus_;
  std::string output_directory_;
  int64_t checkpoint_interval_ = 0;
  int checkpoint_keep_ = 3;
  std::vector<SessionLineage> lineage_;
  std::atomic<bool> drain_ = false;

  std::unique_ptr<Progress> progress_;

  // Of the generation; only its loop's thread uses it, but the link's thread
  // aborts it.
  Communicator* communicator() { return communicator_view_; }

  std::unique_ptr<RankLink> link_;

 private:
  std::string Label() const {
    return fmt::format("job {} g{}", job_, generation_);
  }
  void TakeWelcome(const v1::RankWelcome& welcome);
  StatusOr<std::unique_ptr<Communicator>> FormFrozen();
  Status Adopt(std::unique_ptr<Communicator> communicator);
  Status Compare(const ConfigMap& config, MonoTime deadline);
  Status Scratch();
  void Offer(StepController* controller);
  void DropCommunicator();

  Mutex mu_;
  std::unique_ptr<Communicator> communicator_ ABSL_GUARDED_BY(mu_);
  std::string abort_reason_ ABSL_GUARDED_BY(mu_);
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::RankDirective> directives_ ABSL_GUARDED_BY(mu_);
  Communicator* communicator_view_ = nullptr;
  const Buffer* scratch_ = nullptr;
  uint64_t fingerprint_ = 0;
};

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
  scratch_ = nullptr;
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
                                 Now() + options_.join_timeout));
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
}

Status Session::Impl::Form(const ConfigMap& config) {
  progress_->Enter(Phase::kForming);
  DropCommunicator();
  fingerprint_ = Fingerprint(config);
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator,
                            FormFrozen());
  LOCKSTEP_RETURN_IF_ERROR(Adopt(std::move(communicator)));
  if (link_) {
    LOCKSTEP_RETURN_IF_ERROR(Compare(config, Now() + options_.forming_timeout));
    link_->SendJoined();
    LOCKSTEP_RETURN_IF_ERROR(
        MarkPeerLost(link_->WaitForGo(Now() + options_.go_timeout)));
  }
  progress_->Enter(Phase::kOther);
  return OkStatus();
}

StatusOr<std::unique_ptr<Communicator>> Session::Impl::FormFrozen() {
  CommunicatorOptions options;
  options.backend = options_.backend;
  options.rank = rank_;
  options.size = world_size_;
  options.label = Label();
  options.operation_timeout = options_.operation_timeout;
  options.forming_deadline = Now() + options_.forming_timeout;
  options.module_dir = options_.module_dir;
  options.rendezvous = link_.get();
  if (link_) {
    if (!link_->welcome().bind_address().empty()) {
      options.bind_address = link_->welcome().bind_address();
    }
    LOCKSTEP_RETURN_IF_ERROR(
        MarkPeerLost(link_->Freeze(options.forming_deadline)));
  }
  StatusOr<std::unique_ptr<Communicator>> formed = FormCommunicator(options);
  if (link_) link_->Thaw();
  if (!formed.ok()) return MarkPeerLost(formed.status());
  return formed;
}

Status Session::Impl::Adopt(std::unique_ptr<Communicator> communicator) {
  MutexLock lock(&mu_);
  communicator_ = std::move(communicator);
  communicator_view_ = communicator_.get();
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

StatusOr<std::unique_ptr<Reducer>> Session::Impl::MakeReducer(
    const std::vector<Parameter>& parameters, const ReducerOptions& options) {
  if (communicator() == nullptr) {
    return FailedPrecondition("a reducer needs a formed session");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const BucketPlan plan,
      PlanGradients(parameters, options.bucket_bytes, world_size_));
  // Whoever reduced other shapes, or at other steps, would hang or be wrong.
  const ConfigMap shape = {
      {"checkpoint interval", std::to_string(checkpoint_interval_)},
      {"gradient plan", plan.hash},
      {"start step", std::to_string(options.start_step)},
      {"state hash interval", std::to_string(options.state_hash_interval)},
  };
  if (link_) {
    LOCKSTEP_RETURN_IF_ERROR(Compare(shape, Now() + options_.forming_timeout));
  }
  SteppedReducerOptions stepped;
  stepped.reducer = options;
  stepped.generation = generation_;
  stepped.fingerprint = fingerprint_ ^ Fingerprint(shape);
  stepped.checkpoint_interval = checkpoint_interval_;
  stepped.operation_timeout = options_.operation_timeout;
  stepped.communicator = communicator();
  stepped.progress = progress_.get();
  stepped.before_step = [this](StepController* c) { Offer(c); };
  stepped.on_drain = [this] {
    v1::RankReport report;
    report.set_event("a rank's host is to be drained");
    Send(report);
  };
  return MakeSteppedReducer(parameters, std::move(stepped));
}

void Session::Impl::Offer(StepController* controller) {
  controller->SetDrain(drain_.load(std::memory_order_relaxed));
  std::deque<v1::RankDirective> directives;
  {
    MutexLock lock(&mu_);
    directives.swap(directives_);
  }
  for (const v1::RankDirective& directive : directives) {
    controller->Offer(OpOf(directive.kind()), directive.id());
  }
}

Status Session::Impl::RunCollective(const Operation& operation) {
  const size_t bytes = operation.slice.count * SizeOf(operation.slice.type);
  progress_->CountCollective(bytes);
  return MarkPeerLost(
      Run(communicator(), operation, options_.operation_timeout));
}

Status Session::Impl::Scratch() {
  if (communicator() == nullptr) {
    return FailedPrecondition("collectives need a formed session");
  }
  if (scratch_ != nullptr) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(scratch_, communicator()->Allocate(kScratchBytes));
  return OkStatus();
}

Status Session::Impl::AllReduceSum(std::span<double> values) {
  LOCKSTEP_RETURN_IF_ERROR(Scratch());
  constexpr size_t kPiece = kScratchBytes / sizeof(double);
  while (!values.empty()) {
    const std::span<double> piece =
        values.first(std::min(values.size(), kPiece));
    std::memcpy(scratch_->data, piece.data(), piece.size_bytes());
    LOCKSTEP_RETURN_IF_ERROR(
        RunCollective({CollectiveKind::kAllReduce,
                       {scratch_, 0, piece.size(), DataType::kFloat64}}));
    std::memcpy(piece.data(), scratch_->data, piece.size_bytes());
    values = values.subspan(piece.size());
  }
  return OkStatus();
}

Status Session::Impl::Broadcast(std::string* bytes) {
  LOCKSTEP_RETURN_IF_ERROR(Scratch());
  // Rank 0's mistake must reach all, or they would wait for its bytes.
  uint64_t size = bytes->size();
  std::memcpy(scratch_->data, &size, sizeof(size));
  LOCKSTEP_RETURN_IF_ERROR(
      RunCollective({CollectiveKind::kBroadcast,
                     {scratch_, 0, sizeof(size), DataType::kUint8}}));
  std::memcpy(&size, scratch_->data, sizeof(size));
  if (size > kMaxBroadcast) {
    return InvalidArgument("rank 0 broadcasts {} bytes: at most {}", size,
                           kMaxBroadcast);
  }
  bytes->resize(size);
  for (size_t done = 0; done < size; done += kScratchBytes) {
    const size_t piece = std::min<size_t>(kScratchBytes, size - done);
    std::memcpy(scratch_->data, bytes->data() + done, piece);
    LOCKSTEP_RETURN_IF_ERROR(RunCollective(
        {CollectiveKind::kBroadcast, {scratch_, 0, piece, DataType::kUint8}}));
    std::memcpy(bytes->data() + done, scratch_->data, piece);
  }
  return OkStatus();
}

void Session::Impl::Send(const v1::RankReport& report) {
  if (link_) link_->Report(report);
}

int Session::Impl::Leave(const Status& status) {
  progress_->SettleHeldBack(Duration(0));
  progress_->Enter(Phase::kFinished);
  progress_->Publish();
  if (!status.ok()) {
    v1::RankReport report;
    report.set_failure(Message(status));
    report.set_victim(IsVictim(status));
    report.set_failure_reason(ReasonNumber(ReasonOf(status)));
    Send(report);
    MutexLock lock(&mu_);
    if (communicator_) communicator_->Abort(Message(status));
  }
  if (link_) {
    const Duration time = status.ok() ? kGoodbyeTime : kLastWordsTime;
    if (Status sent = link_->Flush(Now() + time); !sent.ok()) {
      LOG_WARN("{} rank {}: {}", Label(), rank_, Message(sent));
    }
  }
  return ExitCodeFor(status);
}

StatusOr<std::unique_ptr<Session>> Session::Join(SessionOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(impl->Join());
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

bool Session::local() const { return impl_->link_ == nullptr; }
const std::string& Session::job() const { return impl_->job_; }
uint64_t Session::generation() const { return impl_->generation_; }
int Session::rank() const { return impl_->rank_; }
int Session::world_size() const { return impl_->world_size_; }
int Session::local_rank() const { return impl_->local_rank_; }
int Session::local_size() const { return impl_->local_size_; }
int Session::attempt() const { return impl_->attempt_; }
double Session::cpus() const { return impl_->cpus_; }
const std::vector<int>& Session::gpus() const { return impl_->gpus_; }
const std::string& Session::output_directory() const {
  return impl_->output_directory_;
}
int64_t Session::checkpoint_interval_steps() const {
  return impl_->checkpoint_interval_;
}
int Session::checkpoint_keep() const { return impl_->checkpoint_keep_; }
const std::vector<SessionLineage>& Session::lineage() const {
  return impl_->lineage_;
}

Status Session::Form(const ConfigMap& config) { return impl_->Form(config); }
Communicator* Session::communicator() { return impl_->communicator(); }
StatusOr<std::unique_ptr<Reducer>> Session::MakeReducer(
    const std::vector<Parameter>& parameters, const ReducerOptions& options) {
  return impl_->MakeReducer(parameters, options);
}
Status Session::AllReduceSum(std::span<double> values) {
  return impl_->AllReduceSum(values);
}
Status Session::Broadcast(std::string* bytes) {
  return impl_->Broadcast(bytes);
}
Status Session::Barrier() {
  if (impl_->communicator() == nullptr) {
    return FailedPrecondition("collectives need a formed session");
  }
  return impl_->RunCollective({CollectiveKind::kBarrier});
}

void Session::Enter(Phase phase) { impl_->progress_->Enter(phase); }
void Session::Publish() { impl_->progress_->Publish(); }
void Session::Report(std::string_view name, double value) {
  impl_->progress_->SetValue(name, value);
  impl_->progress_->Publish();
}
void Session::CountCheckpoint(int64_t step) {
  impl_->progress_->CountCheckpoint(step);
}
void Session::ReportArtifact(const std::string& name, const std::string& path) {
  v1::RankReport report;
  report.set_artifact_name(name);
  report.set_artifact_path(path);
  impl_->Send(report);
}
void Session::ReportEvent(const std::string& sentence) {
  v1::RankReport report;
  report.set_event(sentence);
  impl_->Send(report);
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
  impl_->Send(report);
}
void Session::ReportResumed(int64_t step) {
  v1::RankReport report;
  report.set_has_resumed_step(true);
  report.set_resumed_step(step);
  impl_->Send(report);
}
void Session::RequestDrain() { impl_->drain_ = true; }

int Session::Leave(const Status& status) { return impl_->Leave(status); }
bool Session::IsVictim(const Status& status) {
  return ReasonOf(status) == kReasonPeerLost;
}
int Session::ExitCodeFor(const Status& status) {
  if (status.ok()) return 0;
  return IsVictim(status) ? kExitPeerLost : kExitFailed;
}

}  // namespace lockstep
