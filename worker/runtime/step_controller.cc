#include "worker/runtime/step_controller.h"

#include <algorithm>
#include <utility>

namespace lockstep::worker::runtime {

StatusOr<StepController> StepController::Create(
    const StepControllerOptions& options) {
  if (options.world_size < 1 || options.world_size > kMaxControlRanks ||
      options.rank < 0 || options.rank >= options.world_size) {
    return InvalidArgument("rank {} of {}: a generation has 1 to {} ranks",
                           options.rank, options.world_size, kMaxControlRanks);
  }
  if (options.start_step < 0 || options.checkpoint_interval < 0 ||
      options.state_hash_interval < 0 || options.max_skipped_in_a_row < 1) {
    return InvalidArgument(
        "start step {}, checkpoint interval {}, state hash interval {}, "
        "skipped steps {}: none may be negative, the last not 0",
        options.start_step, options.checkpoint_interval,
        options.state_hash_interval, options.max_skipped_in_a_row);
  }
  return StepController(options);
}

bool StepController::wants_state_hash() const {
  return options_.state_hash_interval > 0 &&
         step() % options_.state_hash_interval == 0;
}

void DirectiveQueue::Offer(DirectiveOp op, uint32_t id) {
  if (op == DirectiveOp::kNone || !known_.insert(id).second) return;
  queue_.push_back({op, id, 0});
}

std::optional<Directive> DirectiveQueue::ToSend(int64_t step) {
  if (silent_steps_ > 0) {
    --silent_steps_;
    return std::nullopt;
  }
  if (queue_.empty()) return std::nullopt;
  queue_.front().step = step + 1;
  return queue_.front();
}

void DirectiveQueue::Received(const Directive& directive) {
  std::erase_if(queue_, [&](const Directive& waiting) {
    return waiting.id == directive.id;
  });
  known_.insert(directive.id);
}

Status CheckpointRounds::Vote(int rank, uint64_t id, bool durable) {
  if (!in_flight_ || in_flight_->id != id) {
    return FailedPrecondition("checkpoint {} is not in flight", id);
  }
  if (vote_ != CheckpointVote::kNone) {
    return FailedPrecondition("rank {} has voted on checkpoint {} already",
                              rank, id);
  }
  vote_ = durable ? CheckpointVote::kDurable : CheckpointVote::kGivenUp;
  return OkStatus();
}

std::optional<CheckpointSettled> CheckpointRounds::Settle(bool complete) {
  if (!in_flight_) return std::nullopt;
  vote_ = CheckpointVote::kNone;
  settled_ = in_flight_->id;
  settled_complete_ = complete;
  return CheckpointSettled{*std::exchange(in_flight_, std::nullopt), complete};
}

std::optional<CheckpointOrder> CheckpointRounds::StartDue(int64_t committed,
                                                          bool by_interval) {
  waiting_ = waiting_ || by_interval;
  while (!due_.empty() && due_.begin()->first <= committed) {
    const std::vector<uint32_t>& ids = due_.begin()->second;
    waiting_directives_.insert(waiting_directives_.end(), ids.begin(),
                               ids.end());
    due_.erase(due_.begin());
    waiting_ = true;
  }
  if (!waiting_ || in_flight_) return std::nullopt;
  return Start(committed);
}

CheckpointOrder CheckpointRounds::Start(int64_t committed) {
  in_flight_ = CheckpointOrder{committed, ++started_,
                               std::exchange(waiting_directives_, {})};
  waiting_ = false;
  return *in_flight_;
}

void CheckpointRounds::Export(AgreedOrders* orders) const {
  orders->settled = settled_;
  orders->settled_complete = settled_complete_;
  orders->due = due_;
  orders->waiting = waiting_ || in_flight_;
  orders->waiting_directives = waiting_directives_;
  if (in_flight_) {
    orders->waiting_directives.insert(orders->waiting_directives.end(),
                                      in_flight_->directives.begin(),
                                      in_flight_->directives.end());
  }
  orders->started = started_;
}

std::optional<CheckpointSettled> CheckpointRounds::Import(
    const AgreedOrders& orders) {
  const bool known = in_flight_ && in_flight_->id == orders.settled;
  std::optional<CheckpointSettled> settled =
      Settle(known && orders.settled_complete);
  settled_ = orders.settled;
  settled_complete_ = orders.settled_complete;
  due_ = orders.due;
  waiting_ = orders.waiting;
  waiting_directives_ = orders.waiting_directives;
  // A rank may have begun one more that no other has: its id is not used again.
  started_ = orders.started + 1;
  return settled;
}

// What a step and a round have in common.
ControlInput StepController::NewInput(int64_t step) const {
  ControlInput input;
  input.generation = options_.generation;
  input.fingerprint = options_.fingerprint;
  input.step = step;
  input.drain = drain_;
  input.alarm = !alarm_.ok();
  input.vote = checkpoints_.vote();
  return input;
}

StatusOr<ControlWords> StepController::Begin(const StepFacts& facts) {
  if (phase_ != Phase::kIdle) {
    return FailedPrecondition("step {} began before the last one was committed",
                              step());
  }
  if (facts.state_hash.has_value() != wants_state_hash()) {
    return FailedPrecondition("step {} {} a state hash", step(),
                              wants_state_hash() ? "needs" : "takes no");
  }
  own_ = NewInput(step());
  own_.cursor = facts.cursor;
  own_.nonfinite = facts.nonfinite;
  own_.state_hash = facts.state_hash;
  own_.directive = directives_.ToSend(step());
  round_ = false;
  phase_ = Phase::kBegun;
  return EncodeControl(own_, options_.world_size);
}

StatusOr<ControlWords> StepController::BeginRound() {
  if (phase_ != Phase::kIdle) {
    return FailedPrecondition("a round began before step {} was committed",
                              step());
  }
  own_ = NewInput(counts_.committed);
  own_.cursor = counts_.cursor;
  round_ = true;
  phase_ = Phase::kBegun;
  return EncodeControl(own_, options_.world_size);
}

StatusOr<Verdict> StepController::Fail(Status status) {
  phase_ = Phase::kFailed;
  return status;
}

StatusOr<Verdict> StepController::Verify(const ControlWords& sum) {
  if (phase_ != Phase::kBegun) {
    return FailedPrecondition("step {} is verified but has not begun", step());
  }
  StatusOr<ControlOutput> received =
      DecodeControl(own_, sum, options_.world_size);
  if (!received.ok()) return Fail(received.status());
  received_ = *std::move(received);
  if (received_.alarm) {
    if (!alarm_.ok()) return Fail(alarm_);
    return Fail(WithReason(
        Aborted("another rank saw a check fail after step {} and stopped all",
                committed()),
        "ALARM"));
  }
  phase_ = Phase::kVerified;
  next_ = counts_;
  next_.cursor = own_.cursor;
  if (!round_) ++next_.committed;
  if (!received_.check.ok()) {
    // A round may be the last, so there may be no other chance to say it.
    if (round_) return Fail(received_.check);
    alarm_ = received_.check;
    return Verdict{};
  }
  if (!received_.nonfinite) {
    if (!round_) next_.skipped_in_a_row = 0;
    return Verdict{.apply = !round_, .skipped = false};
  }
  ++next_.skipped;
  if (++next_.skipped_in_a_row < options_.max_skipped_in_a_row) {
    return Verdict{.apply = false, .skipped = true};
  }
  return Fail(WithReason(
      FailedPrecondition(
          "{} steps in a row, up to step {}, had a gradient or loss that is "
          "NaN or infinite: lower the learning rate or check the data",
          next_.skipped_in_a_row, step()),
      "NOT_FINITE"));
}

StatusOr<StepOrders> StepController::Commit() {
  if (phase_ != Phase::kVerified) {
    return FailedPrecondition("step {} is committed but was not verified",
                              step());
  }
  phase_ = Phase::kIdle;
  counts_ = next_;
  StepOrders orders;
  orders.drain = received_.drain;
  ReceiveDirective();
  if (stop_ && stop_->step <= committed()) {
    orders.stop = StopOrder{stop_->id};
    stop_.reset();
  }
  last_ = orders;
  // All stop at the next step, and this rank's state is not to be trusted.
  if (!alarm_.ok()) return orders;
  if (received_.checkpoint_complete || received_.checkpoint_given_up) {
    orders.settled = checkpoints_.Settle(received_.checkpoint_complete);
  }
  if (orders.settled && !orders.settled->complete) {
    // May be asked for again.
    for (const uint32_t id : orders.settled->order.directives) {
      directives_.Forget(id);
    }
  }
  const bool by_interval = !round_ && options_.checkpoint_interval > 0 &&
                           committed() % options_.checkpoint_interval == 0;
  orders.checkpoint = checkpoints_.StartDue(committed(), by_interval);
  return orders;
}

void StepController::ReceiveDirective() {
  if (own_.directive && received_.collision) {
    directives_.Collided(options_.rank);
  }
  if (!received_.directive) return;
  directives_.Received(*received_.directive);
  if (received_.directive->op == DirectiveOp::kStop) {
    if (!stop_ || received_.directive->step < stop_->step) {
      stop_ = received_.directive;
    }
  } else {
    checkpoints_.Order(received_.directive->step, received_.directive->id);
  }
}

StatusOr<CheckpointOrder> StepController::BeginCheckpoint() {
  if (phase_ != Phase::kIdle || in_flight()) {
    return FailedPrecondition(
        "a checkpoint of step {} cannot begin: {}", committed(),
        in_flight() ? "one is in flight" : "a step is under way");
  }
  return checkpoints_.Start(committed());
}

Status StepController::Rewind() {
  if (phase_ == Phase::kFailed) {
    return FailedPrecondition("a check failed after step {}: no step follows",
                              committed());
  }
  phase_ = Phase::kIdle;
  return OkStatus();
}

AgreedOrders StepController::Export() const {
  AgreedOrders orders;
  orders.counts = counts_;
  orders.stopped = last_.stop;
  orders.drain = last_.drain;
  orders.stop = stop_;
  checkpoints_.Export(&orders);
  return orders;
}

StepOrders StepController::Import(const AgreedOrders& agreed,
                                  uint64_t generation, uint64_t fingerprint) {
  options_.generation = generation;
  options_.fingerprint = fingerprint;
  counts_ = agreed.counts;
  stop_ = agreed.stop;
  last_ = StepOrders();
  last_.stop = agreed.stopped;
  last_.drain = agreed.drain;
  StepOrders orders = last_;
  orders.settled = checkpoints_.Import(agreed);
  // One that waits is known, whoever brought it; what was given up before may
  // be asked for again.
  if (orders.settled && !orders.settled->complete) {
    for (const uint32_t id : orders.settled->order.directives) {
      directives_.Forget(id);
    }
  }
  for (const auto& [step, ids] : agreed.due) {
    for (const uint32_t id : ids) {
      directives_.Received({DirectiveOp::kCheckpoint, id, step});
    }
  }
  for (const uint32_t id : agreed.waiting_directives) {
    directives_.Received({DirectiveOp::kCheckpoint, id, 0});
  }
  if (stop_) directives_.Received(*stop_);
  return orders;
}

}  // namespace lockstep::worker::runtime
