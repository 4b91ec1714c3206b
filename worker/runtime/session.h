// A rank's membership in its job: the one object a training program makes.
//
//   int main() {
//     auto session = Session::Join({});  // before any thread or socket
//     if (!session.ok()) return Complain(session.status());
//     return (*session)->Leave(Train(session->get()));  // always Leave's code
//   }
//   Status Train(Session* session) {
//     LOCKSTEP_RETURN_IF_ERROR(session->Form({{"model", "cnn"}, ...}));
//     ... restore the checkpoint that rank 0 names: session->Broadcast(&name)
//     LOCKSTEP_ASSIGN_OR_RETURN(auto reducer,
//                               session->MakeReducer(parameters, options));
//     ... the loop of reducer.h, with session->Enter(Phase) around its parts
//   }
//
// A program that lockstep did not start (no LOCKSTEP_LINK) is rank 0 of 1,
// without daemon, status page or Go; everything else is the same.
//
// Threads: the session belongs to the training loop's thread; RequestDrain and
// ReportArtifact, -Event, -Checkpoint and -Resumed may be called from any. The
// link has a thread of its own, which cuts the communicator within 10 ms when
// the daemon says that the generation is over: the loop then gets kAborted from
// whatever it waits for and must leave. Every wait has a deadline.
//
// After the loss of a peer a recoverable session may go on in place:
// recovery.h.
//
// The process's parts (link, status page, timer) are separate from those of a
// generation (communicator, reducer), so that the same process can form a later
// generation.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/reducer.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

// Exit codes of a rank.
inline constexpr int kExitFailed = 1;
// A peer is gone or the generation was ended: not this rank's fault.
inline constexpr int kExitPeerLost = 75;

using Phase = task::RankPhase;

// recovery.h.
struct Membership;
struct Recovered;
struct ReplicaState;

// A value that the chief may report: floating-point operations that a sample
// takes, forward and backward. The coordinator reckons with it.
inline constexpr char kFlopsPerSampleValue[] = "flops_per_sample";

struct SessionOptions {
  // "auto", or a backend's name.
  std::string backend = "auto";
  // CommunicatorOptions::module_dir.
  std::string module_dir = {};
  // For Hello to be answered; for the communicator to form; for Go.
  Duration join_timeout = std::chrono::seconds(10);
  Duration forming_timeout = std::chrono::seconds(30);
  Duration go_timeout = std::chrono::seconds(60);
  // For one reduction: the limit when no other check finds that a peer hangs.
  // Must exceed the longest time that ranks may differ in one step.
  Duration operation_timeout = std::chrono::seconds(300);
  // A lost rank may be replaced while the others keep their state: the program
  // calls Recover (recovery.h). The same on all ranks.
  bool recoverable = false;
  // A recoverable job may train while ranks are away: this rank then computes
  // some of their shards (MembershipOf, recovery.h). The same on all ranks.
  // Gradients go as float32, and their order is not learned. Without effect in
  // a job of one rank. The result has the same bits as that of all ranks, but
  // with backend nccl it is as close as another order of additions. "auto"
  // takes no nccl for an elastic job.
  bool elastic = false;
  // For how long a rank that lost a peer keeps its state and waits for that.
  Duration hold_timeout = std::chrono::minutes(10);
  // For a program that lockstep did not start.
  std::string local_output_directory = {};
  int64_t local_checkpoint_interval = 0;
  int local_checkpoint_keep = 3;
};

struct SessionLineage {
  uint64_t generation = 0;
  // -1: not known; every complete checkpoint of earlier generations counts.
  int64_t start_step = 0;
};

// The coordinator's knowledge of the job's checkpoints, and the order of a
// user; worker/checkpoint/resume.h has the rule for it.
struct SessionResume {
  // The newest complete one of the generations before; generation 0: none.
  uint64_t known_generation = 0;
  int64_t known_step = 0;
  // 0: none was ordered.
  int64_t restore_step = 0;
  bool from_start = false;
};

// Which rank this is, of which job. Constant once the rank has joined.
struct SessionIdentity {
  bool local = true;  // not started by lockstep
  std::string job = "local";
  uint64_t generation = 1;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  int attempt = 1;
  double cpus = 0;  // cores of this rank; 0: not limited
  std::vector<int> gpus = {};
  std::string output_directory = {};
  int64_t checkpoint_interval_steps = 0;
  int checkpoint_keep = 3;
  // Oldest first; the last entry is this generation.
  std::vector<SessionLineage> lineage = {};
  SessionResume resume = {};
  // This process replaces a lost rank: the others have trained already, and it
  // gets its state from them. It restores no checkpoint, and calls nothing
  // collective between Form and Recover (recovery.h). MakeReducer takes its
  // start step from the peers.
  bool recovering = false;
};

// The subject of an event.
enum class EventKind {
  kOther,
  // A checkpoint is damaged, and an older one is used.
  kCheckpointDamaged,
  // The last checkpoint waits for space.
  kOutputFull,
  // Ranks went on after a recovery.
  kRecovered,
};

// Names and values that must be equal on all ranks: what shapes the numbers.
using ConfigMap = std::map<std::string, std::string>;

class Session {
 public:
  // Ignores SIGPIPE, reads the environment, says Hello, maps the page. Call it
  // before anything opens sockets. InvalidArgument: an environment that makes
  // no sense; PermissionDenied: the daemon refuses this rank.
  static StatusOr<std::unique_ptr<Session>> Join(SessionOptions options);
  ~Session();

  const SessionIdentity& identity() const;
  int rank() const { return identity().rank; }
  int world_size() const { return identity().world_size; }
  // The rank that writes what the job saves, and says what it has done: the
  // first one that is not away.
  bool chief() const;

  // Forms the communicator, checks that all ranks have the same job, spec and
  // config, and waits until all of them are there (Go). FailedPrecondition
  // with reason CONFIG_MISMATCH names what differs. A process that replaces a
  // rank of an elastic job does all that in Recover: the others do not wait
  // while it makes its model. Over nccl it only opens its GPU here.
  Status Form(const ConfigMap& config);
  // After Form. Null before Recover on a process that forms there.
  collective::Communicator* communicator();

  // After Form; the config's fingerprint does not know the parameters, so they
  // are compared here. One at a time. FailedPrecondition with reason
  // NO_CHECKPOINT: it would begin at step 0 although a checkpoint is known
  // (SessionResume), and no person ordered that. On a process that replaces a
  // lost rank another recovery may begin meanwhile. This then forms anew: it
  // may wait for hold_timeout, and what communicator() returned before is gone.
  StatusOr<std::unique_ptr<Reducer>> MakeReducer(
      const std::vector<Parameter>& parameters, const ReducerOptions& options);

  // How the ranks reduce (common/model/reduction_plan.h), for checkpoints.
  // After MakeReducer; again when its reducer has learned the order. Empty:
  // with one rank there is nothing to plan.
  const std::string& reduction_plan() const;

  // Small collectives between the steps; all ranks make the same calls. -----

  // values[i] becomes the sum over all ranks, the same bits everywhere.
  Status AllReduceSum(std::span<double> values);
  // Every rank ends with the chief's bytes (at most 64 MiB).
  Status Broadcast(std::string* bytes);
  Status Barrier();

  // At the end, called by all ranks: whether what a rank saved, the last
  // checkpoint or the model, failed because the disk is full (ENOSPC, EDQUOT).
  // `mine` is this rank's result; OK: it did not fail. If one failed, the job
  // gets the event OUTPUT_FULL, all ranks wait, 1 s doubling to 30 s from call
  // to call, and the result is true: the state is in memory only, so save it
  // again, then ask again. An error: the generation has ended meanwhile.
  StatusOr<bool> AwaitSpace(const Status& mine);

  // Time and counters. ------------------------------------------------------

  // From now on time counts for `phase`. Cheap: makes no system call.
  void Enter(Phase phase);
  // The counters of this rank's status page.
  Progress* progress();
  // Writes the status page; Commit does it too. For long evaluations.
  void Publish();

  // Reports to the job. ----------------------------------------------------

  // A measured value by name, shown with the job: ("accuracy", 0.891).
  void Report(std::string_view name, double value);
  void ReportArtifact(const std::string& name, const std::string& path);
  // A sentence for the job's events.
  void ReportEvent(const std::string& sentence,
                   EventKind kind = EventKind::kOther);
  // A published checkpoint; the directives that asked for it are done.
  void ReportCheckpoint(const CheckpointOrder& order, const std::string& path,
                        int64_t bytes);
  void ReportResumed(int64_t step);

  // This rank's host is to be drained: all ranks learn it in the next step.
  void RequestDrain();

  // The end, after the reducer is destroyed. OK: waits until all reports are on
  // their way; returns 0. An error: sends it, with its reason, as the exit
  // message, as a victim when a peer or the daemon ended this rank, and aborts
  // the communicator, so that peers do not wait for this rank. On the chief it
  // is an error, where `status` is OK, that the last checkpoint it voted on was
  // not reported as saved, unless the ranks were ordered to stop early. Returns
  // the exit code. Only the destructor may follow.
  int Leave(const Status& status);
  // Errors of this session and its reducer that are not this rank's fault:
  // reason PEER_LOST.
  static bool IsVictim(const Status& status);
  static int ExitCodeFor(const Status& status);

 private:
  friend bool CanRecover(const Session& session, const Status& error);
  friend const Membership& MembershipOf(const Session& session);
  friend Status CheckMembership(Session* session);
  friend StatusOr<Recovered> Recover(Session* session, const Status& lost,
                                     Reducer* reducer,
                                     const ReplicaState& state);
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_H_
