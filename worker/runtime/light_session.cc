#include "worker/runtime/light_session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/model/away_ranks.h"
#include "worker/rank_link/client.h"
#include "worker/runtime/fork_mark.h"
#include "worker/runtime/light_orders.h"
#include "worker/runtime/light_recoveries.h"
#include "worker/runtime/progress.h"

namespace lockstep::worker::runtime {
namespace {

constexpr Duration kClosingTime = std::chrono::seconds(1);
constexpr Duration kPause = std::chrono::milliseconds(1);
constexpr uint64_t kMaxNumber = uint64_t{1} << 53;
constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

// The process that has joined; 0: none. Of the process and not of an object,
// because a rank has one page.
std::atomic<pid_t> joined_process{0};

// Whether this process has not joined; it has now. A forked child may try, too.
bool TakeProcess() {
  const pid_t own = ::getpid();
  return joined_process.exchange(own) != own;
}

Status CheckNumber(const char* what, uint64_t number) {
  if (number <= kMaxNumber) return OkStatus();
  return InvalidArgument("{} {} is not 0 to 2^53", what,
                         static_cast<int64_t>(number));
}

Status CheckText(const char* what, std::string_view text) {
  if (!text.empty()) return OkStatus();
  return InvalidArgument("{} is empty", what);
}

bool IsForPrograms(task::RankPhase phase) {
  return static_cast<size_t>(phase) < task::kTimedPhases &&
         phase != task::RankPhase::kStragglerWait;
}

LightSessionIdentity IdentityOf(const v1::RankWelcome& welcome,
                                const rank_link::RankKey& key) {
  LightSessionIdentity identity;
  identity.managed = true;
  identity.job = key.job;
  identity.role = welcome.role();
  identity.task_index = welcome.task_index();
  identity.rank = welcome.outside_group() ? -1 : welcome.rank();
  identity.world_size = std::max(1, welcome.world_size());
  identity.local_rank = welcome.local_rank();
  identity.local_size = std::max(1, welcome.local_size());
  identity.generation = key.generation;
  identity.attempt = std::max(1, welcome.attempt());
  identity.cpus = welcome.cpus();
  identity.gpus.assign(welcome.gpus().begin(), welcome.gpus().end());
  identity.output_directory = welcome.output_directory();
  identity.checkpoint_interval_steps =
      std::max<int64_t>(0, welcome.checkpoint_interval_steps());
  if (welcome.checkpoint_keep() > 0) {
    identity.checkpoint_keep = welcome.checkpoint_keep();
  }
  return identity;
}

// Members of a group are numbered in the order of their ranks.
OrderPlace PlaceWithout(OrderPlace place, const std::vector<int>& away) {
  const int rank = place.rank;
  place.world_size -= static_cast<int>(away.size());
  for (const int other : away) {
    if (other < rank) --place.rank;
  }
  return place;
}

}  // namespace

class LightSession::Impl {
 public:
  ~Impl() { (void)Close(); }

  Status Join(const LightSessionOptions& options) {
    LOCKSTEP_ASSIGN_OR_RETURN(std::optional<rank_link::RankIdentity> own,
                              rank_link::ProgramIdentityFromEnvironment());
    MutexLock lock(&mu_);
    std::string page;
    int number = 0;
    if (own) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          link_,
          rank_link::RankLink::Connect(*std::move(own), Callbacks(),
                                       MonotonicNow() + options.join_timeout));
      const v1::RankWelcome welcome = link_->welcome();
      if (!welcome.program()) {
        return FailedPrecondition(
            "the worker daemon of this node is too old for programs to join: "
            "upgrade lockstep-worker");
      }
      identity_ = IdentityOf(welcome, link_->key());
      chief_ = ChiefWithout(
          {welcome.away_ranks().begin(), welcome.away_ranks().end()});
      page = welcome.page_path();
      number = welcome.rank();
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        progress_,
        Progress::Create(page, number, identity_.generation, &wait_page_));
    recoverable_ = options.recoverable;
    // Parameter servers and evaluators have no steps in common.
    if (link_ && identity_.rank >= 0) orders_.Start(link_.get(), OwnPlace());
    return OkStatus();
  }

  // OK: the caller may go on, in Locked.
  Status CheckFork() const {
    if (!fork_.IsForked()) return OkStatus();
    return FailedPrecondition(
        "this process was forked after the session was joined: only the "
        "process that joined may use it");
  }

  // Calls `use` under the lock, unless the session is not this process's or is
  // closed. The fork is checked first: a child has no thread that would release
  // the lock.
  template <typename Use>
  Status Locked(Use use) {
    LOCKSTEP_RETURN_IF_ERROR(CheckFork());
    MutexLock lock(&mu_);
    if (closed_) return FailedPrecondition("the session is closed");
    return use();
  }

  // Calls `use` with the link, outside of the lock: it may wait for at most
  // kLinkSlice. Not where lockstep did not start this process.
  template <typename Use>
  Status WithLink(Use use) {
    std::shared_ptr<rank_link::RankLink> link;
    LOCKSTEP_RETURN_IF_ERROR(Locked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (!recoverable_) {
        return FailedPrecondition("this process did not join as recoverable");
      }
      link = link_;
      return OkStatus();
    }));
    return link == nullptr ? OkStatus() : use(link.get());
  }

  Status JoinRecovery(uint32_t recovery) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<std::vector<int>> away,
                              recoveries_.Join(recovery));
    // Otherwise there is a later one, which this process joins instead.
    if (recovery == 0 || !away) return OkStatus();
    return Locked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      chief_ = ChiefWithout(*away);
      orders_.Restart(PlaceWithout(OwnPlace(), *away), recovery, last_step_);
      return OkStatus();
    });
  }

  Status Send(const v1::RankReport& report) {
    return Locked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (link_) link_->Report(report);
      return OkStatus();
    });
  }

  Status Close() {
    LOCKSTEP_RETURN_IF_ERROR(CheckFork());
    std::shared_ptr<rank_link::RankLink> link;
    {
      MutexLock lock(&mu_);
      if (std::exchange(closed_, true)) return OkStatus();
      if (progress_) {
        progress_->Enter(task::RankPhase::kFinished);
        progress_->Publish();
      }
      link = std::move(link_);
    }
    orders_.Close();
    recoveries_.End(FailedPrecondition("the session is closed"));
    Status sent = OkStatus();
    if (link) sent = link->Flush(MonotonicNow() + kClosingTime);
    // A call that still uses it ends within kLinkSlice.
    while (link.use_count() > 1) std::this_thread::sleep_for(kPause);
    link.reset();
    joined_process.store(0);
    return sent;
  }

  // Under the lock: see Locked.
  Status Step(const LightStep& step) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const int64_t number =
        step.step >= 0 ? step.step : std::max<int64_t>(0, last_step_) + 1;
    if (number < last_step_) {
      return InvalidArgument(
          "step {} is before the last one, {}: report first that the process "
          "resumed from an earlier step",
          number, last_step_);
    }
    const int64_t more = last_step_ < 0 ? 1 : number - last_step_;
    progress_->CountStep(
        {.committed = number,
         .samples = step.samples,
         .loss = step.loss.value_or(kNotKnown),
         .learning_rate = step.learning_rate.value_or(kNotKnown),
         .epoch = epoch_,
         .steps = static_cast<uint64_t>(more)});
    last_step_ = number;
    progress_->Publish();
    orders_.OnStep(number);
    return OkStatus();
  }

  Status Report(std::string_view name,
                double value) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto& values = progress_->counters().values;
    if (values.size() >= task::kMaxReportedValues &&
        std::none_of(values.begin(), values.end(),
                     [&](const auto& known) { return known.first == name; })) {
      return ResourceExhausted(
          "\"{}\": {} values have been reported, and {} "
          "are the most",
          name, values.size(), task::kMaxReportedValues);
    }
    progress_->SetValue(name, value);
    progress_->Publish();
    return OkStatus();
  }

  void Resume(int64_t step) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    last_step_ = step;
    progress_->SetCommitted(step);
    progress_->SetStep(step + 1);
    progress_->Publish();
    orders_.OnStep(step);
  }

  void Plan(uint64_t total_steps, uint64_t epoch,
            uint64_t global_batch) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    epoch_ = epoch;
    progress_->Planned(static_cast<int64_t>(total_steps),
                       static_cast<int64_t>(global_batch), epoch);
    progress_->Publish();
  }

  task::RankPhase Enter(task::RankPhase phase) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const task::RankPhase before = progress_->phase();
    progress_->Enter(phase);
    progress_->Publish();
    return before;
  }

  void CountCheckpoint(int64_t step,
                       int64_t bytes) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    progress_->CountCheckpoint(step, static_cast<uint64_t>(bytes));
    progress_->Publish();
  }

  void OnSaved(int64_t step) { orders_.OnSaved(step); }
  // Not under the lock: it may wait.
  StatusOr<bool> Ask(OrderKind question) {
    LOCKSTEP_RETURN_IF_ERROR(Locked([] { return OkStatus(); }));
    return orders_.Ask(question);
  }

  const LightSessionIdentity& identity() const { return identity_; }
  LightRecoveries* recoveries() { return &recoveries_; }
  int chief() const { return chief_; }
  bool IsForked() const { return fork_.IsForked(); }

 private:
  rank_link::RankLinkCallbacks Callbacks() {
    rank_link::RankLinkCallbacks callbacks = orders_.Callbacks();
    callbacks.abort =
        [this, orders = std::move(callbacks.abort)](const std::string& why) {
          orders(why);
          recoveries_.End(Aborted("{}", why));
        };
    callbacks.recover = [this](const v1::RankWelcome& welcome) {
      recoveries_.Announce(welcome.recovery());
    };
    callbacks.tick = [this, orders = std::move(callbacks.tick)] {
      orders();
      // The process runs; its collectives are the program's own.
      wait_page_.Show({});
    };
    return callbacks;
  }

  OrderPlace OwnPlace() const {
    return {.rank = identity_.rank,
            .world_size = identity_.world_size,
            .token = RandomHex(8)};
  }

  const ForkMark fork_;
  // Constant after Join.
  LightSessionIdentity identity_;
  bool recoverable_ = false;
  std::atomic<int> chief_ = 0;  // The rank.
  LightRecoveries recoveries_{
      [this](const LightRecoveries::Use& use) { return WithLink(use); }};
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  LightOrders orders_;  // Before the link, which calls it.
  // Null: a process that lockstep did not start.
  std::shared_ptr<rank_link::RankLink> link_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Progress> progress_ ABSL_GUARDED_BY(mu_);
  WaitPage wait_page_;                           // progress_'s.
  int64_t last_step_ ABSL_GUARDED_BY(mu_) = -1;  // -1: none yet.
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
};

StatusOr<std::unique_ptr<LightSession>> LightSession::Join(
    LightSessionOptions options) {
  if (!TakeProcess()) {
    return AlreadyExists("this process has joined its job already");
  }
  auto impl = std::make_unique<Impl>();
  if (Status joined = impl->Join(options); !joined.ok()) {
    // Its Close lets the process try again.
    return joined;
  }
  return std::unique_ptr<LightSession>(new LightSession(std::move(impl)));
}

LightSession::LightSession(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

LightSession::~LightSession() {
  // The link's thread is not in the child, and its locks may be held: what is
  // there is left as it is.
  if (impl_->IsForked()) (void)impl_.release();
}

const LightSessionIdentity& LightSession::identity() const {
  return impl_->identity();
}

bool LightSession::chief() const { return identity().rank == impl_->chief(); }

StatusOr<task::RankPhase> LightSession::Enter(task::RankPhase phase) {
  if (!IsForPrograms(phase)) {
    return InvalidArgument("{} is not a phase that a program may enter",
                           static_cast<uint32_t>(phase));
  }
  task::RankPhase before = phase;
  LOCKSTEP_RETURN_IF_ERROR(impl_->Locked([&] {
    before = impl_->Enter(phase);
    return OkStatus();
  }));
  return before;
}

Status LightSession::Step(const LightStep& step) {
  if (step.step < -1) {
    return InvalidArgument("step {} is not 0 to 2^53", step.step);
  }
  if (step.step > 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckNumber("step", static_cast<uint64_t>(step.step)));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("samples", step.samples));
  return impl_->Locked([&] { return impl_->Step(step); });
}

Status LightSession::Plan(uint64_t total_steps, uint64_t epoch,
                          uint64_t global_batch) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("total steps", total_steps));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("epoch", epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("global batch", global_batch));
  return impl_->Locked([&] {
    impl_->Plan(total_steps, epoch, global_batch);
    return OkStatus();
  });
}

Status LightSession::Report(std::string_view name, double value) {
  if (name.empty() || name.size() >= task::kReportedNameBytes) {
    return InvalidArgument("the name of a value, \"{}\", has {} bytes: 1 to {}",
                           name.substr(0, 64), name.size(),
                           task::kReportedNameBytes - 1);
  }
  return impl_->Locked([&] { return impl_->Report(name, value); });
}

Status LightSession::ReportEvent(const std::string& sentence) {
  LOCKSTEP_RETURN_IF_ERROR(CheckText("an event's sentence", sentence));
  v1::RankReport report;
  report.set_event(sentence);
  return impl_->Send(report);
}

Status LightSession::ReportArtifact(const std::string& name,
                                    const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(CheckText("an artifact's name", name));
  LOCKSTEP_RETURN_IF_ERROR(CheckText("an artifact's path", path));
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  v1::RankReport report;
  report.set_artifact_name(name);
  report.set_artifact_path(error ? path : absolute.string());
  return impl_->Send(report);
}

Status LightSession::ReportCheckpoint(int64_t step, const std::string& path,
                                      int64_t bytes) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("step", static_cast<uint64_t>(step)));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("bytes", static_cast<uint64_t>(bytes)));
  LOCKSTEP_RETURN_IF_ERROR(CheckText("a checkpoint's path", path));
  LOCKSTEP_RETURN_IF_ERROR(impl_->CheckFork());
  if (!chief()) {
    return FailedPrecondition(
        "rank {} reports the checkpoints of a job, and this is {}",
        impl_->chief(),
        identity().rank < 0 ? identity().role
                            : fmt::format("rank {}", identity().rank));
  }
  LOCKSTEP_RETURN_IF_ERROR(impl_->Locked([&] {
    impl_->CountCheckpoint(step, bytes);
    return OkStatus();
  }));
  v1::RankReport report;
  report.set_checkpoint_step(step);
  report.set_checkpoint_path(path);
  report.set_checkpoint_bytes(bytes);
  LOCKSTEP_RETURN_IF_ERROR(impl_->Send(report));
  impl_->OnSaved(step);
  return OkStatus();
}

Status LightSession::ReportResumed(int64_t step) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("step", static_cast<uint64_t>(step)));
  LOCKSTEP_RETURN_IF_ERROR(impl_->Locked([&] {
    impl_->Resume(step);
    return OkStatus();
  }));
  if (!chief()) return OkStatus();
  v1::RankReport report;
  report.set_has_resumed_step(true);
  report.set_resumed_step(step);
  return impl_->Send(report);
}

StatusOr<bool> LightSession::CheckpointDue() {
  return impl_->Ask(OrderKind::kCheckpoint);
}

StatusOr<bool> LightSession::ShouldStop() {
  return impl_->Ask(OrderKind::kStop);
}

StatusOr<uint32_t> LightSession::Recovery() {
  return impl_->recoveries()->Newest();
}

Status LightSession::Park(uint32_t left, const std::vector<int>& peers) {
  return impl_->recoveries()->Park(left, peers);
}

StatusOr<uint32_t> LightSession::AwaitRecovery(uint32_t above,
                                               Duration timeout) {
  return impl_->recoveries()->Await(above, timeout);
}

Status LightSession::JoinRecovery(uint32_t recovery) {
  return impl_->JoinRecovery(recovery);
}

Status LightSession::SetElastic(bool elastic) {
  return impl_->recoveries()->SetElastic(elastic);
}

StatusOr<std::vector<int>> LightSession::Away(uint32_t recovery) {
  return impl_->recoveries()->Away(recovery);
}

Status LightSession::Put(uint32_t recovery, const std::string& key,
                         std::string_view value) {
  return impl_->recoveries()->Put(recovery, key, value);
}

StatusOr<std::string> LightSession::Get(uint32_t recovery,
                                        const std::string& key,
                                        Duration timeout) {
  return impl_->recoveries()->Get(recovery, key, timeout);
}

Status LightSession::Close() { return impl_->Close(); }

}  // namespace lockstep::worker::runtime
