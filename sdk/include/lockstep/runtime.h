// lockstep's API for programs that train: a rank's membership in its job.
//
//   int main() {
//     auto session = lockstep::runtime::Session::Join({});  // first of all
//     if (!session.ok()) return Complain(session.status());
//     return (*session)->Leave(Train(session->get()));  // always Leave's code
//   }
//
//   absl::Status Train(Session* session) {
//     RETURN_IF_ERROR(session->Form({{"model", "mine"}, {"batch", "64"}}));
//     auto reducer = session->MakeReducer({{"w", 1000}, {"b", 10}}, {});
//     ...
//     while (true) {
//       // Forward, backward into reducer.gradient(i), reducer.Ready(i) as each
//       // is complete. Each rank adds the gradient of (the summed loss of its
//       // samples / the step's samples on all ranks): the sum is the mean.
//       auto result = reducer.Finish(inputs);
//       if (!result.ok()) return result.status();
//       if (result->apply) optimizer.step();
//       auto orders = reducer.Commit();
//       if (!orders.ok()) return orders.status();
//       if (orders->checkpoint) saver.Start(*orders->checkpoint);  // snapshot
//       if (orders->settled) saver.Settled(*orders->settled);      // publish
//       if (orders->stop) break;
//       if (saver.done()) reducer.Vote(saver.id(), saver.ok());
//     }
//     while (reducer.checkpoint_in_flight()) ...  // wait, Vote, Settle
//   }
//
// Build with find_package(lockstep) and lockstep::runtime, or pkg-config
// lockstep-runtime. A program that lockstep did not start is rank 0 of 1,
// without other differences. Submit it with `lockstep submit --kind native`.
//
// Threads: Session and Reducer belong to the training loop's thread;
// RequestDrain, ReportArtifact, ReportEvent, ReportCheckpoint and ReportResumed
// are safe from any thread. Every wait has a deadline. If a peer is lost, the
// waiting call returns an error: pass it to Recover where CanRecover says so,
// else to Leave.
#ifndef LOCKSTEP_RUNTIME_H_
#define LOCKSTEP_RUNTIME_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::runtime {

// Phases of a rank's time; they exclude each other.
enum class Phase {
  kInput,          // Waiting for samples.
  kCompute,        // Forward and backward.
  kAllReduce,      // Set by the reducer itself.
  kStragglerWait,  // Set by the reducer itself.
  kOptimizer,
  kCheckpoint,  // Stalled by a checkpoint.
  kEvaluation,
  kOther,
  kCompile,  // Building kernels and graphs.
};

struct SessionOptions {
  // "auto", or the name of a backend: "shm", "tcp", "hierarchical", "nccl".
  std::string backend = "auto";
  // Timeouts: for the daemon's answer, for rendezvous, and for the arrival of
  // all ranks.
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds forming_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds go_timeout = std::chrono::seconds(60);
  // Timeout of one reduction. Must exceed the largest time difference between
  // ranks in one step.
  std::chrono::nanoseconds operation_timeout = std::chrono::seconds(300);
  // A lost rank may be replaced while the other processes keep their state; see
  // Session::Recover. The same on all ranks.
  bool recoverable = false;
  // A recoverable job may train while ranks are away: this rank then computes
  // some of their shards. The same on all ranks; see Session::shards. The
  // result has the same bits as that of all ranks, but with backend "nccl" it
  // is as close as another order of additions; "auto" takes no nccl then.
  bool elastic = false;
  // How long a rank that lost a peer keeps its state and waits for that.
  std::chrono::nanoseconds hold_timeout = std::chrono::minutes(10);
  // For a program that lockstep did not start.
  std::string local_output_directory = {};
  int64_t local_checkpoint_interval = 0;
  int local_checkpoint_keep = 3;
};

// A float32 tensor. Order and sizes are the same on all ranks.
struct Parameter {
  std::string name;
  size_t elements = 0;
};

struct ReducerOptions {
  // Steps in the state: 0, or the step of the restored checkpoint.
  int64_t start_step = 0;
  // Approximate size of a gradient bucket. 0: from the job's reduction plan,
  // else by measurement.
  size_t bucket_bytes = 0;
  // For displays; 0: unknown.
  int64_t total_steps = 0;
  int64_t global_batch = 0;
  // The state hash is compared at multiples of this step; 0: never.
  int64_t state_hash_interval = 100;
  // The CUDA stream (cudaStream_t) that computes the gradients, to keep them in
  // the GPU's memory. Needs SessionOptions::backend "nccl", also for a single
  // rank. gradient(i) is then GPU memory. Call Ready once the work that
  // completes a gradient is on the stream. ZeroGradients runs on the stream,
  // and readers of gradients at Commit must be on it; their errors arrive with
  // the step. The stream must not be captured into a graph meanwhile. The
  // default stream is cudaStreamLegacy, or this thread's cudaStreamPerThread.
  // Null: gradients are in host memory. InvalidArgument if the backend has no
  // device.
  void* device_stream = nullptr;
};

// Inputs of this rank for the step.
struct StepInputs {
  int64_t samples = 0;
  double loss_sum = 0;
  // Position in the data once this step is committed.
  uint64_t epoch = 0;
  uint64_t position = 0;
  // Hash of the state before this step; set it exactly when wants_state_hash().
  std::optional<uint64_t> state_hash;
  double learning_rate = 0;
};

struct StepResult {
  // Run the optimizer. If false, the step is skipped: some gradient is not
  // finite (`skipped`), or a check failed and the next step ends the job.
  bool apply = false;
  bool skipped = false;
  // Over all ranks. The loss is the mean over their samples.
  int64_t samples = 0;
  double loss = 0;
};

// Save the state after `step` now.
struct CheckpointOrder {
  int64_t step = 0;
  uint64_t id = 0;
  // Directives that requested it.
  std::vector<uint32_t> directives;
};

// The checkpoint in flight is settled. If `complete`, every rank's part is
// durable and rank 0 publishes it; else each rank drops its part.
struct CheckpointSettled {
  CheckpointOrder order;
  bool complete = false;
};

// Equal on all ranks.
struct StepOrders {
  std::optional<CheckpointSettled> settled;
  std::optional<CheckpointOrder> checkpoint;
  bool stop = false;
  // The host of some rank is draining.
  bool drain = false;
};

// This rank's state, for Recover.
struct ReplicaState {
  // Parameters and optimizer state, in place, as after the last Commit. Number,
  // order and sizes are the same on all ranks.
  std::vector<std::span<std::byte>> memory;
  // The rest of the state that all ranks share, for instance the position in
  // the data; at most 32 MiB. `load` gets what `save` returned on a rank with
  // the newest state, on every rank. Both may be empty.
  std::function<std::string()> save = {};
  std::function<absl::Status(std::string_view)> load = {};
  // Like `memory`, what is on the GPU, with backend nccl: addresses of the
  // device, and the stream that computes it (as ReducerOptions::device_stream).
  std::vector<std::span<std::byte>> device_memory = {};
  void* device_stream = nullptr;
};

struct Recovered {
  uint32_t recovery = 0;
  // Steps in the state.
  int64_t step = 0;
  // This rank got its state from a peer.
  bool received = false;
  // Handle them like those of Commit. A checkpoint in flight is usually
  // abandoned and starts again with the next Commit or Settle.
  StepOrders orders;
};

// Reduces the gradients of one generation, step by step. Must not outlive its
// session.
class Reducer {
 public:
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Gradient of parameter i, usable as its .grad; its address is stable.
  std::span<float> gradient(size_t i);
  size_t parameters() const;
  // For a backward pass that accumulates. Call it after Commit.
  void ZeroGradients();

  // The current step, from 1, and the steps in the state.
  int64_t step() const;
  int64_t committed() const;
  bool wants_state_hash() const;

  // Marks gradient i of this step complete. Call it once per step and
  // parameter; Finish does it for the rest.
  absl::Status Ready(size_t i);
  // With SessionOptions::elastic: the gradients of one of Session::shards() are
  // complete, and those of the next one follow; Finish takes the last one's
  // samples and loss. Gradients keep their values, which a backward pass that
  // accumulates must clear (ZeroGradients).
  absl::Status NextShard(int64_t samples, double loss_sum);
  // When this returns, the gradients are those of the whole step.
  absl::StatusOr<StepResult> Finish(const StepInputs& inputs);
  // Call it after the optimizer has run or the step was skipped.
  absl::StatusOr<StepOrders> Commit();

  // This rank's part of checkpoint `id` is durable, or was abandoned.
  absl::Status Vote(uint64_t id, bool durable);
  std::optional<CheckpointOrder> checkpoint_in_flight() const;
  bool voted() const;
  // Call it on all ranks when no more steps follow, each after its vote, until
  // nothing is in flight. May order a checkpoint that waited.
  absl::StatusOr<StepOrders> Settle();
  // Checkpoints the current state. Call it on all ranks, between steps.
  absl::StatusOr<CheckpointOrder> BeginCheckpoint();

 private:
  friend class Session;
  struct Impl;
  explicit Reducer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

class Session {
 public:
  // Ignores SIGPIPE, reads the environment and connects to the daemon. Call it
  // before anything opens sockets or starts threads. InvalidArgument: the
  // environment is invalid; PermissionDenied: the daemon refuses this rank.
  static absl::StatusOr<std::unique_ptr<Session>> Join(
      const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Identity of this rank. Constant.
  bool local() const;  // Not started by lockstep.
  const std::string& job() const;
  uint64_t generation() const;
  int rank() const;
  int world_size() const;
  int local_rank() const;
  int local_size() const;
  int attempt() const;
  double cpus() const;  // Cores of this rank; 0: not limited.
  const std::vector<int>& gpus() const;
  const std::string& output_directory() const;
  int64_t checkpoint_interval_steps() const;
  int checkpoint_keep() const;

  // Names and values that must be equal on all ranks, because they determine
  // the numbers. FailedPrecondition names the difference.
  absl::Status Form(const std::map<std::string, std::string>& config);
  // Call it after Form. At most one reducer exists at a time. Where
  // recovering(), it may wait for another recovery, up to hold_timeout.
  absl::StatusOr<std::unique_ptr<Reducer>> MakeReducer(
      const std::vector<Parameter>& parameters, const ReducerOptions& options);

  // Recovery in place: after the loss of a peer, the ranks form again with its
  // replacement and share their state. The replacement runs the same program.
  //
  //   absl::Status status;
  //   bool recover = session->recovering();  // else restore a checkpoint
  //   do {
  //     if (recover) {
  //       auto recovered = session->Recover(status, &reducer, {...});
  //       if (!recovered.ok()) return recovered.status();
  //     }
  //     status = Train();  // from reducer.step() on, then Settle
  //     recover = session->CanRecover(status);
  //   } while (recover);
  //
  // This process replaces a lost rank. It restores no checkpoint and calls
  // nothing collective between Form and Recover.
  bool recovering() const;
  // `error` is the loss of a peer after which Recover may help.
  bool CanRecover(const absl::Status& error) const;
  // `lost` is that error; OK in a replacement. Call it before the optimizer has
  // changed the state, or after Commit. Afterwards all ranks have the same
  // state, and gradients are zero. Gradients keep their addresses.
  absl::StatusOr<Recovered> Recover(const absl::Status& lost, Reducer* reducer,
                                    const ReplicaState& state);

  // An elastic job (SessionOptions::elastic, `lockstep submit --elastic MIN`)
  // goes on while ranks are away. Its global batch has one shard for each rank
  // of the job, and each gradient is the sum over all shards, from the first to
  // the last, at each number of ranks; over nccl in an order that depends on
  // the ranks that are there. rank() and world_size() stay. The loop is
  //
  //   auto status = session->CheckMembership();
  //   for (int shard : session->shards()) {
  //     // Forward and backward of this shard, with random numbers by (seed,
  //     // step, shard) alone; NextShard after each but the last one.
  //   }
  //   // Finish, optimizer, Commit.
  //
  // The shards of this rank, its own one first; they change in Recover only.
  // Without `elastic` its rank.
  const std::vector<int>& shards() const;
  // Before each step: an error for CanRecover when ranks return, and wait for
  // this one in Recover. Without the call they wait for 60 s; over nccl the
  // step under way fails at once, and is made again after Recover.
  absl::Status CheckMembership();
  // The rank that saves and reports for the job: the first that is not away. It
  // may change in Recover.
  bool chief() const;

  // Small collectives outside of steps, called by all ranks: the sum, with the
  // same bits everywhere; the chief's bytes (at most 64 MiB).
  absl::Status AllReduceSum(std::span<double> values);
  absl::Status Broadcast(std::string* bytes);
  absl::Status Barrier();

  // Counts time for `phase` from now on. Costs no system call.
  void Enter(Phase phase);
  // Publishes the counters to the daemon; Commit does it too.
  void Publish();

  // Reports for the job: a value by name (at most 16 names of 31 bytes; the
  // chief's are shown), a file, a sentence. "flops_per_sample", the operations
  // of one sample forward and backward, gives the utilization of the GPUs.
  void Report(std::string_view name, double value);
  void ReportArtifact(const std::string& name, const std::string& path);
  void ReportEvent(const std::string& sentence);
  // Reports a published checkpoint.
  void ReportCheckpoint(const CheckpointOrder& order, const std::string& path,
                        int64_t bytes);
  void ReportResumed(int64_t step);
  void CountCheckpoint(int64_t step);  // This rank's part is durable.
  // Asks to drain this rank's host: all ranks learn it in the next step.
  void RequestDrain();

  // Call it at the end, after the reducer is destroyed. Returns the exit code,
  // which tells the cause of a failure.
  int Leave(const absl::Status& status);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::runtime

#endif  // LOCKSTEP_RUNTIME_H_
