// Reduces the gradients of one generation, step by step.
//
// The gradients of all parameters lie in buckets that the communicator
// allocated; gradient(i) is the storage of parameter i, to be used as its
// .grad. A bucket is started as soon as its last gradient is ready, the tail
// with the control word rides in the last one. Buckets are filled from the
// last parameter to the first, in the order in which backward makes them.
//
// Weighted mean: every rank adds the gradient of (the summed loss of its
// samples / the step's global number of samples), so the sum is the mean. A
// rank without samples leaves zeros.
//
//   while (true) {
//     // forward, backward into gradient(i), Ready(i) as each is complete
//     LOCKSTEP_ASSIGN_OR_RETURN(StepResult result, reducer->Finish(inputs));
//     if (result.apply) optimizer.step();
//     LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, reducer->Commit());
//     if (orders.checkpoint) saver.Start(*orders.checkpoint);  // snapshot now
//     if (orders.settled) saver.Settled(*orders.settled);      // publish
//     if (orders.stop) break;
//     if (saver.done()) reducer->Vote(id, saver.ok());
//   }
//   while (reducer->in_flight()) {
//     // wait for the saver, Vote
//     LOCKSTEP_ASSIGN_OR_RETURN(StepOrders orders, reducer->Settle());
//     // obey settled and checkpoint as above
//   }
//
// Threads: the training loop's only. Errors end the generation: pass them to
// Session::Leave. Made by Session::MakeReducer; must not outlive the session.
#ifndef LOCKSTEP_WORKER_RUNTIME_REDUCER_H_
#define LOCKSTEP_WORKER_RUNTIME_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/step_controller.h"

namespace lockstep {

// A float32 tensor. Order and sizes are the same on all ranks.
struct Parameter {
  std::string name;
  size_t elements = 0;
};

struct ReducerOptions {
  // Steps in the state: 0, or the step of the restored checkpoint.
  int64_t start_step = 0;
  // Gradients are reduced in pieces of about this size.
  size_t bucket_bytes = 4 << 20;
  // Planned steps of the whole job, for displays; 0: not known.
  int64_t total_steps = 0;
  // Samples of a full step of all ranks, for displays; 0: not known.
  int64_t global_batch = 0;
  // The state hash is compared at steps that divide by it; 0: never.
  int64_t state_hash_interval = 100;
};

// What this rank did in the step.
struct StepInputs {
  // Its samples and the sum of their losses. 0 and 0 for none.
  int64_t samples = 0;
  double loss_sum = 0;
  // Where the data stands once this step is committed.
  uint64_t epoch = 0;
  uint64_t position = 0;
  // Of the state before this step; given exactly when wants_state_hash().
  std::optional<uint64_t> state_hash;
  double learning_rate = 0;
};

struct StepResult {
  // Run the optimizer. Else the step is skipped: some gradient is not finite
  // (`skipped`), or a check failed and the next step ends the job.
  bool apply = false;
  bool skipped = false;
  // Of all ranks. The loss is the mean over their samples.
  int64_t samples = 0;
  double loss = 0;
};

class Session;

class Reducer {
 public:
  virtual ~Reducer() = default;

  // Parameter i's gradient; stays in place as long as the reducer. Zero at
  // first.
  virtual std::span<float> gradient(size_t i) = 0;
  virtual size_t parameters() const = 0;
  // Sets all gradients to zero, for a backward that adds. After Commit.
  virtual void ZeroGradients() = 0;

  // The step being worked on, from 1.
  virtual int64_t step() const = 0;
  // Steps in the state.
  virtual int64_t committed() const = 0;
  // Finish needs StepInputs::state_hash.
  virtual bool wants_state_hash() const = 0;

  // Gradient i of this step is complete and will not be touched until Finish
  // returned. Once a step for each parameter; Finish does it for those left
  // out. Starts its bucket when that was the last one in it and those before
  // it have started.
  virtual Status Ready(size_t i) = 0;
  // Waits until all is reduced and verified. The gradients are now those of
  // the whole step. Time spent counts as all-reduce or straggler wait.
  virtual StatusOr<StepResult> Finish(const StepInputs& inputs) = 0;
  // The optimizer has run, or the step was skipped.
  virtual StatusOr<StepOrders> Commit() = 0;

  // This rank's part of checkpoint `id` is durable, or given up.
  virtual Status Vote(uint64_t id, bool durable) = 0;
  // The checkpoint that has started and is not settled.
  virtual const std::optional<CheckpointOrder>& in_flight() const = 0;
  virtual bool voted() const = 0;
  // When no more steps come: one round of the control word alone. All ranks
  // call it alike, each after its vote, until in_flight() is empty. It may
  // order the checkpoint that waited for the one in flight: that is in flight
  // from then on.
  virtual StatusOr<StepOrders> Settle() = 0;
  // All ranks alike, between steps: a checkpoint of the state as it is.
  virtual StatusOr<CheckpointOrder> BeginCheckpoint() = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_REDUCER_H_
