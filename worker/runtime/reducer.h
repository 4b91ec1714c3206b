// Reduces the gradients of one generation, step by step.
//
// The gradients of all parameters lie in buckets, which the communicator
// allocated (or the reducer, of an elastic job that is not over nccl);
// gradient(i) is the storage of parameter i. A bucket is started as soon as its
// last gradient is ready and those before it have started; the tail with the
// control word is in the last one, or behind it. By default buckets are filled
// from the last parameter to the first. Where the backend makes no progress by
// itself, each Ready moves the reductions on.
//
// Two ways to hand a gradient over: write it to gradient(i), then Ready(i); or
// give it to Add (of all micro-batches but the last) and Put, which take it in
// one pass with all that must be done to it.
//
// Where the model computes on a device (backend nccl), gradients may lie there
// (device_stream): the backward pass writes them, micro-batch upon micro-batch,
// to gradient(i), and only the tail passes through the host. Call Ready when
// the work that completes the gradient is on the stream; Finish waits for it.
//
// The reducer learns the order in which gradients become ready where that is
// asked for: after step 2 rank 0's order is that of all ranks, and the buckets
// are laid out again. Sums of more than two ranks may depend on the layout, so
// bit-equal runs need the same one: sizes and order are part of the reduction
// plan, which later generations take over (reduction_planner.h), and which
// belongs in the checkpoint with order().
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
// An elastic job (SessionOptions::elastic) sums gradients shard by shard: each
// element is the sum over all shards, from the first to the last, in float32.
// So it has the same bits at each number of ranks. Over nccl each rank adds its
// own shards up first, so the bits depend on which ranks are there.
//
//     LOCKSTEP_RETURN_IF_ERROR(CheckMembership(session));  // recovery.h
//     const std::vector<int>& shards = MembershipOf(*session).own_shards();
//     for (const int shard : shards) {
//       // forward and backward of this shard, with random numbers by
//       // (seed, step, shard) only
//       if (shard != shards.back()) reducer->NextShard(...);
//     }
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

namespace lockstep::worker::runtime {

// A float32 tensor. Order and sizes are the same on all ranks.
struct Parameter {
  std::string name;
  size_t elements = 0;
};

struct ReducerOptions {
  // Steps in the state: 0, or the step of the restored checkpoint.
  int64_t start_step = 0;
  // Gradients are reduced in pieces of about this size. 0: as the job's
  // reduction plan says, else by measurement (bucket_sizing.h).
  size_t bucket_bytes = 0;
  // The order in which gradients become ready, by parameter. Empty: from the
  // last to the first.
  std::vector<uint32_t> order = {};
  // Learn the order where `order` is empty. gradient(i) then moves once, in
  // Commit.
  bool learn_order = false;
  // Gradients are rounded to bfloat16 for the wire, and their sum is: half the
  // bytes. Each value, and the sum, made in float32, is rounded once: off by at
  // most 2^-7 of the sum of the ranks' absolute values; over hierarchical,
  // which rounds the hosts' sums, too, 3 * 2^-8 (Bfloat16WireError). Refused
  // over nccl, which rounds at every hop.
  bool bf16_wire = false;
  // The largest norm of all gradients together; 0: any.
  double clip_norm = 0;
  // The CUDA stream on which the gradients are made, where they lie on the
  // device of the communicator: gradient(i) is then the device's memory, only
  // Ready hands it over, and ZeroGradients is in turn on the stream. Once
  // Finish has returned any stream may read gradients, but what is not over by
  // Commit must be on this one. It is not being captured into a graph. The
  // default stream is cudaStreamLegacy, or cudaStreamPerThread of the training
  // loop's thread, never null. Null: gradients lie in the host's memory.
  // InvalidArgument where the backend has no device.
  collective::Stream device_stream = nullptr;
  // Planned steps of the whole job, for displays; 0: not known.
  int64_t total_steps = 0;
  // Samples of a full step of all ranks, for displays; 0: not known.
  int64_t global_batch = 0;
  // The state hash is compared at steps that divide by it; 0: never.
  int64_t state_hash_interval = 100;
};

// This rank's part in the step.
struct StepInputs {
  // Its samples and the sum of their losses. 0 and 0 for none.
  int64_t samples = 0;
  double loss_sum = 0;
  // The cursor of the data once this step is committed.
  uint64_t epoch = 0;
  uint64_t position = 0;
  // The hash of the state before this step; set exactly when
  // wants_state_hash().
  std::optional<uint64_t> state_hash;
  double learning_rate = 0;
};

struct StepResult {
  // Run the optimizer. Else the step is skipped: some gradient is not finite
  // (`skipped`), or a check failed and the next step ends the job.
  bool apply = false;
  bool skipped = false;
  // The factor for gradients, and their norm before that; with clip_norm only.
  double gradient_scale = 1;
  double gradient_norm = 0;
  // All ranks' samples, and the mean loss over them.
  int64_t samples = 0;
  double loss = 0;
};

class Session;

class Reducer {
 public:
  virtual ~Reducer() = default;

  // Parameter i's gradient; stays in place as long as the reducer, unless it
  // learns the order. Zero at first and after it moved.
  virtual std::span<float> gradient(size_t i) = 0;
  virtual size_t parameters() const = 0;
  // Sets all gradients to zero, for a backward that adds. After Commit. Errors
  // of a device come with the step.
  virtual void ZeroGradients() = 0;

  // The step being worked on, from 1.
  virtual int64_t step() const = 0;
  // Steps in the state.
  virtual int64_t committed() const = 0;
  // Finish needs StepInputs::state_hash.
  virtual bool wants_state_hash() const = 0;

  // Adds to gradient i of this step; the first call replaces what was there.
  // REQUIRES: of its size, and apart from gradient(i), or for a Put without
  // Add gradient(i) itself. InvalidArgument where gradients are on a device.
  virtual Status Add(size_t i, std::span<const float> gradient) = 0;
  // Add and Ready in one.
  virtual Status Put(size_t i, std::span<const float> gradient) = 0;
  // Gradient i of this step is complete and will not be touched until Finish
  // returned. Once a step for each parameter; Finish does it for those left
  // out. Starts its bucket when that was the last one in it and those before
  // it have started.
  virtual Status Ready(size_t i) = 0;
  // Waits until all is reduced and verified. The gradients are now those of
  // the whole step. Time spent counts as all-reduce or straggler wait.
  virtual StatusOr<StepResult> Finish(const StepInputs& inputs) = 0;
  // Elastic jobs: the gradients of one of this rank's shards are complete,
  // and those of the next one follow. `samples` and `loss_sum` are of this
  // shard; Finish takes those of the last one. Gradients keep their values:
  // call ZeroGradients for a backward that adds.
  virtual Status NextShard(int64_t samples, double loss_sum) = 0;
  // The optimizer has run, or the step was skipped.
  virtual StatusOr<StepOrders> Commit() = 0;

  // The order in which buckets are filled; empty: from the last to the first,
  // so far.
  virtual const std::vector<uint32_t>& order() const = 0;

  // This rank's part of checkpoint `id` is durable, or given up.
  virtual Status Vote(uint64_t id, bool durable) = 0;
  // The checkpoint that has started and is not settled.
  virtual const std::optional<CheckpointOrder>& in_flight() const = 0;
  virtual bool voted() const = 0;
  // When no more steps come: one round of the control word alone. All ranks
  // call it, each after its vote, until in_flight() is empty. It may order the
  // checkpoint that waited for the one in flight: that is in flight from then
  // on.
  virtual StatusOr<StepOrders> Settle() = 0;
  // All ranks call it between steps: a checkpoint of the state as it is.
  virtual StatusOr<CheckpointOrder> BeginCheckpoint() = 0;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_REDUCER_H_
