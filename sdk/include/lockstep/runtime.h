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
// lockstep-runtime. A program that lockstep did not start is rank 0 of 1, and
// everything else is the same. Submit it with `lockstep submit --kind
// native`.
//
// Threads: Session and Reducer belong to the training loop's thread;
// RequestDrain, ReportArtifact, ReportEvent, ReportCheckpoint and
// ReportResumed may be called from any. Every wait has a deadline. When a peer
// is lost the loop gets an error from whatever it waits for: hand it to Leave.
#ifndef LOCKSTEP_RUNTIME_H_
#define LOCKSTEP_RUNTIME_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
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

// Where a rank's time goes; the phases exclude each other.
enum class Phase {
  kInput,          // Waiting for samples.
  kCompute,        // Forward and backward.
  kAllReduce,      // Set by the reducer itself.
  kStragglerWait,  // Set by the reducer itself.
  kOptimizer,
  kCheckpoint,  // Standing still for a checkpoint.
  kEvaluation,
  kOther,
};

struct SessionOptions {
  // "auto", or a backend's name: "shm", "tcp", "hierarchical", "nccl".
  std::string backend = "auto";
  // For the daemon's answer; for the ranks to find each other; for all of them
  // to be there.
  std::chrono::nanoseconds join_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds forming_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds go_timeout = std::chrono::seconds(60);
  // For one reduction. Must exceed the longest time by which ranks may differ
  // in one step.
  std::chrono::nanoseconds operation_timeout = std::chrono::seconds(300);
  // Of a program that lockstep did not start.
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
  // Gradients are reduced in pieces of about this size. 0: as the job's
  // reduction plan says, else by measurement.
  size_t bucket_bytes = 0;
  // For displays; 0: not known.
  int64_t total_steps = 0;
  int64_t global_batch = 0;
  // The state hash is compared at steps that divide by it; 0: never.
  int64_t state_hash_interval = 100;
  // The CUDA stream (cudaStream_t) on which gradients are made, where they are
  // to lie in the GPU's memory; needs SessionOptions::backend "nccl", also for
  // one rank alone. gradient(i) is then memory of the GPU; Ready is called once
  // the work that completes a gradient is on the stream, ZeroGradients takes
  // its turn there, and what still reads gradients at Commit must be on it;
  // errors of either come with the step. The stream is not being captured into
  // a graph meanwhile. The default one is cudaStreamLegacy, or this thread's
  // cudaStreamPerThread. Null: gradients lie in the host's memory.
  // InvalidArgument where the backend has no device.
  void* device_stream = nullptr;
};

// What this rank did in the step.
struct StepInputs {
  int64_t samples = 0;
  double loss_sum = 0;
  // Where the data stands once this step is committed.
  uint64_t epoch = 0;
  uint64_t position = 0;
  // Of the state before this step; exactly when wants_state_hash().
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

// Save the state after `step`, now.
struct CheckpointOrder {
  int64_t step = 0;
  uint64_t id = 0;
  // The commands that asked for it.
  std::vector<uint32_t> directives;
};

// The checkpoint in flight is over. `complete`: every rank's part is durable,
// rank 0 publishes it; else each drops its part.
struct CheckpointSettled {
  CheckpointOrder order;
  bool complete = false;
};

// Equal on all ranks.
struct StepOrders {
  std::optional<CheckpointSettled> settled;
  std::optional<CheckpointOrder> checkpoint;
  bool stop = false;
  // Some rank's host is to be emptied.
  bool drain = false;
};

// Reduces the gradients of one generation, step by step. Must not outlive its
// session.
class Reducer {
 public:
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Parameter i's gradient, to be used as its .grad; stays in place.
  std::span<float> gradient(size_t i);
  size_t parameters() const;
  // For a backward that adds. After Commit.
  void ZeroGradients();

  // The step being worked on, from 1; steps in the state.
  int64_t step() const;
  int64_t committed() const;
  bool wants_state_hash() const;

  // Gradient i of this step is complete. Once a step for each parameter;
  // Finish does it for those left out.
  absl::Status Ready(size_t i);
  // The gradients are those of the whole step once this returns.
  absl::StatusOr<StepResult> Finish(const StepInputs& inputs);
  // The optimizer has run, or the step was skipped.
  absl::StatusOr<StepOrders> Commit();

  // This rank's part of checkpoint `id` is durable, or given up.
  absl::Status Vote(uint64_t id, bool durable);
  std::optional<CheckpointOrder> checkpoint_in_flight() const;
  bool voted() const;
  // When no more steps come: all ranks alike, each after its vote, until
  // nothing is in flight. May order the checkpoint that waited.
  absl::StatusOr<StepOrders> Settle();
  // All ranks alike, between steps: a checkpoint of the state as it is.
  absl::StatusOr<CheckpointOrder> BeginCheckpoint();

 private:
  friend class Session;
  struct Impl;
  explicit Reducer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

class Session {
 public:
  // Ignores SIGPIPE, reads the environment, greets the daemon. Before anything
  // opens sockets or starts threads. InvalidArgument: the environment makes no
  // sense; PermissionDenied: the daemon refuses this rank.
  static absl::StatusOr<std::unique_ptr<Session>> Join(
      const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Who and where. Constant.
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

  // Names and values that must be equal on all ranks: what shapes the numbers.
  // FailedPrecondition names what differs.
  absl::Status Form(const std::map<std::string, std::string>& config);
  // After Form; one at a time.
  absl::StatusOr<std::unique_ptr<Reducer>> MakeReducer(
      const std::vector<Parameter>& parameters, const ReducerOptions& options);

  // Small collectives beside the steps, called by all ranks alike: the sum,
  // with the same bits everywhere; rank 0's bytes (at most 64 MiB).
  absl::Status AllReduceSum(std::span<double> values);
  absl::Status Broadcast(std::string* bytes);
  absl::Status Barrier();

  // From now on time counts for `phase`. Costs no system call.
  void Enter(Phase phase);
  // Shows the counters to the daemon; Commit does it too.
  void Publish();

  // What the job should know: a value by name (at most 16 names of 31 bytes,
  // the chief's are shown), a file, a sentence. "flops_per_sample", what one
  // sample takes forward and backward, is reckoned into the use of the GPUs.
  void Report(std::string_view name, double value);
  void ReportArtifact(const std::string& name, const std::string& path);
  void ReportEvent(const std::string& sentence);
  // A published checkpoint.
  void ReportCheckpoint(const CheckpointOrder& order, const std::string& path,
                        int64_t bytes);
  void ReportResumed(int64_t step);
  void CountCheckpoint(int64_t step);  // This rank's part is durable.
  // This rank's host should be emptied: all learn it in the next step.
  void RequestDrain();

  // The end, after the reducer is gone. Returns the exit code, which says
  // whose fault it was.
  int Leave(const absl::Status& status);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::runtime

#endif  // LOCKSTEP_RUNTIME_H_
