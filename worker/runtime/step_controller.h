// Decides what every rank of a generation does after each step. Each rank
// decides alone, and all decide the same. PURE: no communication, clock, lock
// or file.
//
// Steps are counted from 1; after step s, s steps are in the state. A step is
//   Begin(facts)  -> the words this rank adds to the all-reduce
//   Verify(sum)   -> apply or skip; only then may the optimizer run
//   Commit()      -> orders: checkpoint now, checkpoint settled, stop
// A skipped step is committed too: its samples are used up. A round without
// gradients (BeginRound, Verify, Commit) keeps the step: it settles the
// checkpoint in flight when no more steps come.
//
// Checkpoints: all ranks start the same one after the same step. Each then
// writes its part while training goes on, and votes when that is durable or
// given up. After the step in which the last vote was in, all know that it is
// complete (the chief may publish) or given up. One is in flight at most; a
// newer one waits for it, and starts at the step at which it settled.
//
// Failures are errors of Verify, equal on all ranks or raised to all by the
// alarm word one step later. A rank that sees a check fail does not apply, and
// goes on for one step so that all receive the alarm; then all stop. Reasons:
// CONFIG_MISMATCH, DIVERGED, NOT_FINITE, ALARM (another rank saw it).
#ifndef LOCKSTEP_WORKER_RUNTIME_STEP_CONTROLLER_H_
#define LOCKSTEP_WORKER_RUNTIME_STEP_CONTROLLER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/runtime/control_word.h"

namespace lockstep::worker::runtime {

struct StepControllerOptions {
  int rank = 0;
  int world_size = 1;
  uint64_t generation = 0;
  // The fingerprint of config and plan, equal on all ranks since the handshake.
  uint64_t fingerprint = 0;
  // Steps that are in the state when this generation begins.
  int64_t start_step = 0;
  // A checkpoint after each step that divides by it; 0: none.
  int64_t checkpoint_interval = 0;
  // The state hash is compared at each step that divides by it; 0: never.
  int64_t state_hash_interval = 0;
  // This many skipped steps in a row end the job.
  int max_skipped_in_a_row = 10;
};

// This rank's facts before the step's all-reduce.
struct StepFacts {
  // The cursor of the data once this step is committed.
  uint64_t cursor = 0;
  // A gradient or the loss of this rank is NaN or infinite.
  bool nonfinite = false;
  // Given exactly when wants_state_hash().
  std::optional<uint64_t> state_hash;
};

struct Verdict {
  bool apply = false;
  // Some rank's gradient was not finite: all skip. False with apply false: this
  // rank saw a check fail; the next Verify ends it.
  bool skipped = false;
};

// Start this checkpoint now: the state is that after `step`.
struct CheckpointOrder {
  int64_t step = 0;
  // The number of the attempt within the generation, from 1.
  uint64_t id = 0;
  // The directives that asked for it.
  std::vector<uint32_t> directives;

  bool operator==(const CheckpointOrder&) const = default;
};

// The checkpoint in flight is over.
struct CheckpointSettled {
  CheckpointOrder order;
  // Every part is durable: the chief publishes. Else each rank drops its part.
  bool complete = false;

  bool operator==(const CheckpointSettled&) const = default;
};

struct StopOrder {
  uint32_t directive = 0;

  bool operator==(const StopOrder&) const = default;
};

// Equal on all ranks.
struct StepOrders {
  std::optional<CheckpointSettled> settled;
  std::optional<CheckpointOrder> checkpoint;
  std::optional<StopOrder> stop;
  // Some rank was ordered to drain.
  bool drain = false;
};

// Counts of the steps in the state.
struct StepCounts {
  int64_t committed = 0;
  int64_t skipped = 0;
  int skipped_in_a_row = 0;
  // The cursor of the data.
  uint64_t cursor = 0;

  bool operator==(const StepCounts&) const = default;
};

// All that ranks with the same steps in their states agree on: for a rank that
// gets its state from a peer (docs/design/recovery.md).
struct AgreedOrders {
  StepCounts counts;
  // By the last Commit.
  std::optional<StopOrder> stopped;
  bool drain = false;
  // The checkpoint that was settled last.
  uint64_t settled = 0;  // Its id; 0: none.
  bool settled_complete = false;
  // To come: a stop, and checkpoints by the step after which they are due.
  std::optional<Directive> stop;
  std::map<int64_t, std::vector<uint32_t>> due;
  // A checkpoint begins as soon as it can. One that was in flight does.
  bool waiting = false;
  std::vector<uint32_t> waiting_directives;
  // Checkpoints that have begun.
  uint64_t started = 0;

  bool operator==(const AgreedOrders&) const = default;
};
std::string Encode(const AgreedOrders& orders);
// DataLoss for what Encode did not make.
StatusOr<AgreedOrders> DecodeAgreedOrders(std::string_view text);

// The directives that one rank brings in, for all ranks. PURE.
class DirectiveQueue {
 public:
  // Ignored when it is queued, sent or done already.
  void Offer(DirectiveOp op, uint32_t id);
  // The directive to send with the words of `step`, if it is this rank's turn.
  std::optional<Directive> ToSend(int64_t step);
  // All ranks have received `directive`, also where another rank sent it.
  void Received(const Directive& directive);
  // Several ranks sent one in the same step: rank `rank` waits. No two ranks
  // wait equally long, so they collide only once.
  void Collided(int rank) { silent_steps_ = rank + 1; }
  // May be offered again.
  void Forget(uint32_t id) { known_.erase(id); }

 private:
  std::deque<Directive> queue_;  // .step is set when it is sent
  std::set<uint32_t> known_;     // queued, sent or done
  int silent_steps_ = 0;         // after a collision
};

// Which checkpoint is in flight, and which is to come. PURE.
class CheckpointRounds {
 public:
  // A directive asks for a checkpoint after `step`.
  void Order(int64_t step, uint32_t directive) {
    due_[step].push_back(directive);
  }
  // This rank's vote on the one in flight. FailedPrecondition: none with that
  // id is in flight, or it has voted.
  Status Vote(int rank, uint64_t id, bool durable);
  // The checkpoint in flight is over; nothing where none is.
  std::optional<CheckpointSettled> Settle(bool complete);
  // After `committed` steps: a checkpoint starts, if one waits or falls due
  // (`by_interval`: by the job's interval) and none is in flight.
  std::optional<CheckpointOrder> StartDue(int64_t committed, bool by_interval);
  CheckpointOrder Start(int64_t committed);

  // Writes what is agreed; a checkpoint in flight is one that waits.
  void Export(AgreedOrders* orders) const;
  // Takes `orders`. Returns the checkpoint that was in flight: given up, unless
  // `orders` knows better.
  std::optional<CheckpointSettled> Import(const AgreedOrders& orders);

  const std::optional<CheckpointOrder>& in_flight() const { return in_flight_; }
  CheckpointVote vote() const { return vote_; }

 private:
  // Agreed and still to come: step -> directives.
  std::map<int64_t, std::vector<uint32_t>> due_;
  // A checkpoint fell due while another was in flight.
  bool waiting_ = false;
  std::vector<uint32_t> waiting_directives_;
  std::optional<CheckpointOrder> in_flight_;
  CheckpointVote vote_ = CheckpointVote::kNone;
  uint64_t started_ = 0;
  // The last that was settled.
  uint64_t settled_ = 0;
  bool settled_complete_ = false;
};

class StepController {
 public:
  // InvalidArgument for options out of range.
  static StatusOr<StepController> Create(const StepControllerOptions& options);

  // The step that Begin starts, or that is under way.
  int64_t step() const { return counts_.committed + 1; }
  // Steps in the state, skipped ones counted.
  int64_t committed() const { return counts_.committed; }
  int64_t skipped() const { return counts_.skipped; }
  bool wants_state_hash() const;

  // Before Begin: this rank's requests. ----------------------------------

  // A directive of the coordinator, for all ranks, which this one sends.
  // Ignored when it is queued, sent or done already.
  void Offer(DirectiveOp op, uint32_t id) { directives_.Offer(op, id); }
  void SetDrain(bool drain) { drain_ = drain; }
  // After Rewind: who this rank is among the ranks of another communicator.
  void SetMembers(int rank, int world_size) {
    options_.rank = rank;
    options_.world_size = world_size;
  }
  // Called by all ranks after the same step.
  void SetFingerprint(uint64_t fingerprint) {
    options_.fingerprint = fingerprint;
  }
  // This rank's part of the checkpoint in flight: durable, or given up.
  // FailedPrecondition when none is in flight or it has voted.
  Status Vote(uint64_t checkpoint_id, bool durable) {
    return checkpoints_.Vote(options_.rank, checkpoint_id, durable);
  }

  // The step. -------------------------------------------------------------

  StatusOr<ControlWords> Begin(const StepFacts& facts);
  // A round without gradients; no step is used up.
  StatusOr<ControlWords> BeginRound();
  StatusOr<Verdict> Verify(const ControlWords& sum);
  // After the optimizer, or instead of it.
  StatusOr<StepOrders> Commit();

  // Between steps, called by all ranks: begins a checkpoint of the
  // state as it is. FailedPrecondition while one is in flight.
  StatusOr<CheckpointOrder> BeginCheckpoint();
  // Started and not settled.
  const std::optional<CheckpointOrder>& in_flight() const {
    return checkpoints_.in_flight();
  }
  bool voted() const { return checkpoints_.vote() != CheckpointVote::kNone; }

  // A recovery. -----------------------------------------------------------

  // A step that has begun and is not committed has not begun.
  // FailedPrecondition: a check has failed, so no step may follow.
  Status Rewind();
  AgreedOrders Export() const;
  // After Rewind: this rank has the state that `orders` belongs to; all ranks
  // take the same. Returns the last Commit's orders to this rank, without a
  // checkpoint to begin, and how this rank's checkpoint in flight ended: where
  // none knows better it is given up, and begins anew with the next Commit.
  StepOrders Import(const AgreedOrders& orders, uint64_t generation,
                    uint64_t fingerprint);

 private:
  explicit StepController(const StepControllerOptions& options)
      : options_(options), counts_{.committed = options.start_step} {}
  enum class Phase : uint8_t { kIdle, kBegun, kVerified, kFailed };

  StatusOr<Verdict> Fail(Status status);
  void ReceiveDirective();
  ControlInput NewInput(int64_t step) const;

  StepControllerOptions options_;
  StepCounts counts_;
  // Once the step under way is committed. Set by Verify.
  StepCounts next_;
  Phase phase_ = Phase::kIdle;
  bool round_ = false;
  bool drain_ = false;

  ControlInput own_;
  ControlOutput received_;
  // The check that failed on this rank; sent to all as the alarm, then
  // returned.
  Status alarm_;

  DirectiveQueue directives_;
  std::optional<Directive> stop_;  // agreed and still to come
  // Of the last Commit: its stop and drain.
  StepOrders last_;
  CheckpointRounds checkpoints_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_STEP_CONTROLLER_H_
