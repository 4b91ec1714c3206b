// Recovery in place (recovery.h).
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "common/model/resources.h"
#include "worker/collective/leveling.h"
#include "worker/collective/lost_peers.h"
#include "worker/runtime/fingerprint.h"
#include "worker/runtime/peer_lost.h"
#include "worker/runtime/session_impl.h"

namespace lockstep::worker::runtime {
namespace {

using collective::LevelResult;

// The keys of one recovery.
class RecoveryStore final : public collective::RendezvousStore {
 public:
  RecoveryStore(collective::RendezvousStore* store, uint32_t recovery)
      : store_(store), prefix_(fmt::format("recovery/{}/", recovery)) {}
  Status Put(const std::string& key, std::string_view value) override {
    return store_->Put(prefix_ + key, value);
  }
  StatusOr<std::string> Get(const std::string& key,
                            MonoTime deadline) override {
    return store_->Get(prefix_ + key, deadline);
  }

 private:
  collective::RendezvousStore* const store_;
  const std::string prefix_;
};

// What goes to the other ranks besides the memory.
struct SmallPart {
  std::string program;  // ReplicaState::save
  std::string agreed;   // RecoverableReducer::Agreed
  std::string plan;     // The reduction plan; empty: it cannot be kept.
};

// Sizes in front: "12 345 6 " and the texts.
std::string JoinParts(const SmallPart& part) {
  return fmt::format("{} {} {} {}{}{}", part.program.size(), part.agreed.size(),
                     part.plan.size(), part.program, part.agreed, part.plan);
}

StatusOr<SmallPart> SplitParts(std::string_view text) {
  size_t sizes[3] = {};
  for (size_t& size : sizes) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos ||
        std::from_chars(text.data(), text.data() + space, size).ptr !=
            text.data() + space ||
        size > text.size()) {
      return DataLoss("a peer's state has an invalid small part");
    }
    text.remove_prefix(space + 1);
  }
  if (text.size() != sizes[0] + sizes[1] + sizes[2]) {
    return DataLoss("a peer's state has a small part of {} bytes, not {}",
                    text.size(), sizes[0] + sizes[1] + sizes[2]);
  }
  return SmallPart{std::string(text.substr(0, sizes[0])),
                   std::string(text.substr(sizes[0], sizes[1])),
                   std::string(text.substr(sizes[0] + sizes[1]))};
}

// "recovery 1: 3 ranks went on with step 1204 after 84 ms; rank 1 received
// 100 MiB in 61 ms"
std::string Describe(const LevelResult& level, const Membership& membership,
                     uint32_t recovery, Duration time) {
  const std::vector<int> to = membership.RanksAt(level.plan.receivers);
  std::string text = fmt::format(
      "recovery {}: {} rank{} went on with step {} after {}", recovery,
      level.plan.sources.size(), level.plan.sources.size() == 1 ? "" : "s",
      level.plan.step + 1, FormatDuration(time));
  if (to.empty()) return text;
  return text + fmt::format("; rank{} {} received {} in {}",
                            to.size() == 1 ? "" : "s", fmt::join(to, ", "),
                            FormatBytes(level.bytes),
                            FormatDuration(level.time));
}

}  // namespace

// One call of Recover; or the part of Form that a replacement needs, without
// reducer and state.
class Session::Impl::Recovering {
 public:
  Recovering(Impl* session, RecoverableReducer* reducer,
             const ReplicaState* state)
      : session_(*session),
        was_chief_(session->membership_.place == 0),
        reducer_(reducer),
        state_(state),
        deadline_(MonotonicNow() + session->options_.hold_timeout) {}

  StatusOr<Recovered> Run(const Status& lost);
  // Forms recoveries, and levels where there is a state, until one succeeds.
  Status Follow();
  // The same after `lost`, which has ended the communicator.
  Status FollowAfter(const Status& lost) {
    LOCKSTEP_RETURN_IF_ERROR(LeaveRanks(lost));
    return Follow();
  }

 private:
  // Aborts and drops the communicator, and says so to the coordinator.
  // FailedPrecondition: a check has failed, so no step may follow. Internal:
  // the device does not stop.
  Status LeaveRanks(const Status& lost);
  Status AwaitDevice();
  // This rank waits for the recovery after the newest one it knows of.
  void SayParked(const std::vector<int>& lost_peers);
  // Learns who is a member; false: this rank is away, or a newer recovery has
  // begun.
  bool TakePart();
  Status Form();
  // A rank without a plan takes that of another rank.
  Status TakePlan(collective::RendezvousStore* store);
  Status Digest();
  Status Level();
  Status Take(const LevelResult& level);
  void Report(MonoTime began);
  // A rank may have much to do between two comparisons: to start, to make its
  // model.
  MonoTime CompareBy() const {
    return MonotonicNow() + std::max(session_.options_.forming_timeout,
                                     session_.options_.operation_timeout);
  }

  Impl& session_;
  bool was_chief_;
  RecoverableReducer* const reducer_;
  const ReplicaState* const state_;
  MonoTime deadline_;
  // Of the state that this rank brings, once it is known.
  std::optional<collective::StateDigest> digest_;
  LevelResult level_;
  Recovered recovered_;
};

Status Session::Impl::Recovering::LeaveRanks(const Status& lost) {
  session_.communicator_.Leave(Message(lost));
  const Status rewound = reducer_ != nullptr ? reducer_->Unbind() : OkStatus();
  session_.DropCommunicator();
  LOCKSTEP_RETURN_IF_ERROR(AwaitDevice());
  LOCKSTEP_RETURN_IF_ERROR(rewound);
  SayParked(session_.membership_.RanksAt(collective::LostPeersOf(lost)));
  LOG_WARN("{} rank {} keeps its state and waits for a recovery: {}",
           session_.Label(), session_.identity_.rank, Message(lost));
  return OkStatus();
}

// CUDA frees memory only when the program's stream stands still, too. A rank
// that is not parked is one that the others do not count on.
Status Session::Impl::Recovering::AwaitDevice() {
  Impl& s = session_;
  const auto kept = s.addresses_ ? s.addresses_->kept() : nullptr;
  if (kept == nullptr ||
      kept->AwaitFree(MonotonicNow() + s.options_.forming_timeout)) {
    return OkStatus();
  }
  return Internal(
      "{}: rank {} cannot go on: its GPU has not stopped since it left its "
      "communicator, and only the end of this process frees it",
      s.Label(), s.identity_.rank);
}

void Session::Impl::Recovering::SayParked(const std::vector<int>& lost_peers) {
  v1::RankReport report;
  report.set_parked(session_.kept_.recovery + 1);
  for (const int peer : lost_peers) report.add_lost_peers(peer);
  session_.Send(report);
}

bool Session::Impl::Recovering::TakePart() {
  Impl& s = session_;
  const v1::RankWelcome welcome = s.link_->welcome();
  if (welcome.recovery() != s.kept_.recovery) return false;
  s.membership_ =
      MembershipIn(welcome, s.identity_.world_size, s.identity_.rank);
  if (s.membership_.place >= 0) return true;
  LOG_INFO("job {} g{}: rank {} is away in recovery {}, and waits for the next",
           s.identity_.job, s.identity_.generation, s.identity_.rank,
           s.kept_.recovery);
  was_chief_ = false;
  // The others go on, so its state is old.
  s.kept_.has_state = false;
  SayParked({});
  return false;
}

Status Session::Impl::Recovering::TakePlan(collective::RendezvousStore* store) {
  const int own = session_.identity_.rank;
  ReductionPlanner& planner = *session_.planner_;
  LOCKSTEP_RETURN_IF_ERROR(
      store->Put(fmt::format("plan/{}", own), planner.text()));
  for (int rank = 0;
       planner.text().empty() && rank < session_.identity_.world_size; ++rank) {
    if (rank == own) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string text,
        store->Get(fmt::format("plan/{}", rank), deadline_));
    if (!text.empty()) LOCKSTEP_RETURN_IF_ERROR(planner.Follow(text));
  }
  if (!planner.text().empty()) return OkStatus();
  return FailedPrecondition("no rank has a reduction plan to go on with");
}

Status Session::Impl::Recovering::Form() {
  Impl& s = session_;
  RecoveryStore store(s.link_.get(), s.kept_.recovery);
  // Each rank of an elastic job makes the same plan.
  if (!s.kept_.elastic) {
    LOCKSTEP_RETURN_IF_ERROR(MarkPeerLost(TakePlan(&store)));
  }
  // The coordinator ends it earlier where a rank does not come.
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<collective::Communicator> communicator,
      s.FormRanks(&store, deadline_));
  s.plan_reports_.choice()->clear();
  LOCKSTEP_RETURN_IF_ERROR(s.communicator_.Adopt(
      std::move(communicator), s.membership_, s.kept_.recovery));
  // First of all, where it was in the communicator before.
  if (reducer_ != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(
        MarkPeerLost(reducer_->Rebind(s.communicator(), s.membership_)));
  }
  s.collectives_.emplace(s.communicator(), s.progress_.get(),
                         s.options_.operation_timeout);
  ConfigMap all = s.kept_.config;
  all["reduction plan"] = s.planner_->Shape();
  s.fingerprint_ = Fingerprint(all);
  return s.Compare(all, CompareBy());
}

Status Session::Impl::Recovering::Follow() {
  while (true) {
    StatusOr<uint32_t> next =
        session_.link_->WaitForRecovery(session_.kept_.recovery, deadline_);
    if (!next.ok()) return MarkPeerLost(next.status());
    session_.kept_.recovery = *next;
    if (session_.kept_.elastic && !TakePart()) {
      deadline_ = MonotonicNow() + session_.options_.hold_timeout;
      continue;
    }
    Status done = Form();
    if (done.ok() && state_ != nullptr) done = Level();
    if (done.ok() || !IsVictim(done)) return done;
    LOCKSTEP_RETURN_IF_ERROR(LeaveRanks(done));
  }
}

// What lies on a device is read through a communicator.
Status Session::Impl::Recovering::Digest() {
  if (digest_) return OkStatus();
  StatusOr<collective::StateDigest> digest = collective::DigestOf(
      session_.communicator(), state_->memory, state_->device);
  if (!digest.ok()) return MarkPeerLost(digest.status());
  digest_ = *std::move(digest);
  return OkStatus();
}

Status Session::Impl::Recovering::Level() {
  Impl& s = session_;
  // Before the comparison, whose time allows for it.
  if (s.kept_.has_state) LOCKSTEP_RETURN_IF_ERROR(Digest());
  LOCKSTEP_RETURN_IF_ERROR(s.Compare(s.kept_.shape, CompareBy()));
  collective::LevelInput input;
  input.memory = state_->memory;
  input.device = state_->device;
  input.record.has_state = s.kept_.has_state;
  if (s.kept_.has_state) {
    input.digest = *digest_;
    input.record.committed = reducer_->committed();
    input.record.digest = digest_->hash;
    input.record.in_flight = reducer_->in_flight().has_value();
    input.record.learned = !reducer_->order().empty();
    input.small = JoinParts({state_->save ? state_->save() : "",
                             reducer_->Agreed(), s.planner_->text()});
  }
  bool written = false;
  StatusOr<LevelResult> level =
      collective::Level(s.communicator(), std::move(input),
                        s.options_.operation_timeout, &written);
  if (level.ok()) return Take(*level);
  // A rank that was to receive may have half of a state.
  if (written) s.kept_.has_state = false;
  // It names places, and the label the ranks.
  return MarkPeerLost(Annotate(level.status(), s.Label()));
}

Status Session::Impl::Recovering::Take(const LevelResult& level) {
  Impl& s = session_;
  const std::vector<int>& to = level.plan.receivers;
  const auto received = [&](int place) {
    return std::find(to.begin(), to.end(), place) != to.end();
  };
  recovered_.received = received(s.membership_.place);
  recovered_.chief_received = received(0);
  LOCKSTEP_ASSIGN_OR_RETURN(const SmallPart part, SplitParts(level.small));
  if (!part.plan.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(s.planner_->Follow(part.plan));
  }
  // Until the rest is done, too, this rank cannot give it to others.
  if (recovered_.received) s.kept_.has_state = false;
  StatusOr<StepOrders> orders = reducer_->Resume(
      part.agreed, CommunicatorNumber(s.identity_.generation, s.kept_.recovery),
      s.fingerprint_ ^ Fingerprint(s.kept_.shape));
  if (!orders.ok()) return MarkPeerLost(orders.status());
  recovered_.orders = *std::move(orders);
  if (state_->load) LOCKSTEP_RETURN_IF_ERROR(state_->load(part.program));
  s.kept_.has_state = true;
  level_ = level;
  return OkStatus();
}

void Session::Impl::Recovering::Report(MonoTime began) {
  Impl& s = session_;
  recovered_.recovery = s.kept_.recovery;
  recovered_.step = level_.plan.step;
  recovered_.bytes = level_.bytes;
  recovered_.level_time = level_.time;
  recovered_.time = MonotonicNow() - began;
  s.communicator_.SetTrains();
  if (!was_chief_) s.checkpoints_.Forget();
  recovered_.became_chief = !was_chief_ && s.membership_.place == 0;
  // A new process begins with none, and all wait equally often.
  s.space_waits_ = 0;
  s.link_->SendJoined(s.kept_.recovery, true, s.kept_.elastic);
  if (level_.plan.sources.front() != s.membership_.place) return;
  const std::string sentence =
      Describe(level_, s.membership_, s.kept_.recovery, recovered_.time);
  LOG_INFO("{}: {}", s.Label(), sentence);
  s.SendEvent(sentence, EventKind::kRecovered);
}

StatusOr<Recovered> Session::Impl::Recovering::Run(const Status& lost) {
  const MonoTime began = MonotonicNow();
  session_.progress_->SettleHeldBack(Duration(0));
  session_.progress_->Enter(Phase::kForming);
  if (!lost.ok()) {
    const Status left = LeaveRanks(lost);
    if (left.code() == StatusCode::kFailedPrecondition) return lost;
    LOCKSTEP_RETURN_IF_ERROR(left);
  }
  // The replacement starts meanwhile.
  if (session_.kept_.has_state && state_->device.memory.empty()) {
    digest_ = collective::DigestOf(state_->memory);
  }
  // One that replaces a rank of an elastic job has no communicator with the
  // others yet.
  const bool formed = session_.communicator() != nullptr;
  Status done = lost.ok() && formed ? Level() : lost;
  if (lost.ok() && !formed) {
    session_.DropCommunicator();
    LOCKSTEP_RETURN_IF_ERROR(AwaitDevice());
    done = Follow();
  } else if (!done.ok() && IsVictim(done)) {
    if (lost.ok()) LOCKSTEP_RETURN_IF_ERROR(LeaveRanks(done));
    done = Follow();
  }
  LOCKSTEP_RETURN_IF_ERROR(done);
  Report(began);
  session_.progress_->Enter(Phase::kOther);
  session_.progress_->Publish();
  return std::move(recovered_);
}

bool Session::Impl::CanRecover(const Status& error) const {
  return kept_.recoverable && link_ != nullptr && kept_.has_state &&
         kept_.reducer != nullptr && !planner_->text().empty() &&
         IsVictim(error);
}

Status Session::Impl::FormRecovering(const Status& lost) {
  if (!lost.ok()) {
    // It has no state yet, so it tries again in the next one.
    const bool again = kept_.recoverable && !kept_.has_state &&
                       !kept_.elastic && link_ != nullptr && IsVictim(lost);
    return again ? Recovering(this, nullptr, nullptr).FollowAfter(lost) : lost;
  }
  if (!options_.recoverable) {
    return FailedPrecondition(
        "rank {} is to replace a lost one, and its session is not recoverable",
        identity_.rank);
  }
  kept_.recoverable = true;
  // The newest one.
  --kept_.recovery;
  if (kept_.elastic_over_nccl) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::unique_ptr<collective::Communicator> lone,
        FormRanks(nullptr, MonotonicNow() + options_.forming_timeout));
    communicator_.SetLone(std::move(lone));
  } else if (!kept_.elastic) {
    LOCKSTEP_RETURN_IF_ERROR(Recovering(this, nullptr, nullptr).Follow());
  }
  progress_->Enter(Phase::kOther);
  return OkStatus();
}

StatusOr<Recovered> Session::Impl::Recover(const Status& lost, Reducer* reducer,
                                           const ReplicaState& state) {
  if (reducer == nullptr || reducer != kept_.reducer) {
    return FailedPrecondition("recover with the reducer of this session");
  }
  // A replacement may be told so once, and before it has a state.
  const bool possible = lost.ok() ? !kept_.has_state : CanRecover(lost);
  if (!possible && !lost.ok()) return lost;
  if (!possible) {
    return FailedPrecondition(
        "rank {} has a state, and no error to recover from", identity_.rank);
  }
  StatusOr<Recovered> recovered =
      Recovering(this, kept_.reducer, &state).Run(lost);
  // Not tried again.
  if (!recovered.ok()) kept_.recoverable = false;
  return recovered;
}

}  // namespace lockstep::worker::runtime
