// The membership of a program's process in its job: of a rank that reduces by
// other means, such as PyTorch's.
//
//   auto session = LightSession::Join({});
//   (*session)->ReportResumed(step);
//   loop: (*session)->Enter(Phase::kCompute); ... (*session)->Step({.loss =
//   l});
//   (*session)->Close();
//
// There is no Form and no Go: the process joins whenever it likes, after
// imports and after threads were started, or never. From then on the job shows
// its progress, and the coordinator notices when it stands still. The process
// changes no signal handler, and needs no daemon to go on. One process of a
// rank may join at a time.
//
// A process that lockstep did not start is rank 0 of 1, and every call works.
//
// Threads: all methods from any thread. Step and Enter make no system call and
// wait for no one but each other; they take about a microsecond. So do
// CheckpointDue and ShouldStop, unless an order is being agreed on for this
// very step: then they wait for the chief's decision. In a forked child every
// call returns FailedPrecondition, and its destructor does nothing. After Close
// every call but identity() returns FailedPrecondition.
#ifndef LOCKSTEP_WORKER_RUNTIME_LIGHT_SESSION_H_
#define LOCKSTEP_WORKER_RUNTIME_LIGHT_SESSION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

struct LightSessionOptions {
  // For the daemon's answer.
  Duration join_timeout = std::chrono::seconds(10);
  // The process stays when other ranks of the job are lost: see "Recoveries".
  bool recoverable = false;
};

struct LightSessionIdentity {
  bool managed = false;  // Started by lockstep.
  std::string job = "local";
  std::string role = {};  // "chief", "worker", "ps", "evaluator"; "" outside.
  int task_index = 0;
  int rank = 0;  // -1: parameter servers and evaluators have none.
  int world_size = 1;
  int local_rank = 0;
  int local_size = 1;
  uint64_t generation = 1;
  int attempt = 1;
  double cpus = 0;  // Cores of this rank; 0: not limited.
  std::vector<int> gpus = {};
  std::string output_directory = {};
  int64_t checkpoint_interval_steps = 0;  // 0: none.
  int checkpoint_keep = 3;
};

struct LightStep {
  // The number of the step that ended; -1: the last one and 1. The number of
  // the last step again: more of that step.
  int64_t step = -1;
  uint64_t samples = 0;  // Of this rank; 0: not known.
  // Values that are not finite are taken, and the last finite one is shown.
  std::optional<double> loss = {};
  std::optional<double> learning_rate = {};
};

class LightSession {
 public:
  // Reads the environment, says Hello, maps the page. AlreadyExists: this
  // process has joined and not closed, or another process of this rank has and
  // lives. PermissionDenied: the daemon refuses, also a rank of a protocol that
  // it does not have (worker/rank_link/protocol.h). DeadlineExceeded: it does
  // not answer. FailedPrecondition: the daemon is too old, or the job is
  // native.
  static StatusOr<std::unique_ptr<LightSession>> Join(
      LightSessionOptions options);
  // Closes.
  ~LightSession();
  LightSession(const LightSession&) = delete;
  LightSession& operator=(const LightSession&) = delete;

  const LightSessionIdentity& identity() const;
  // Whether this rank speaks for all and writes what the job saves: rank 0, or
  // while that is away the first rank that is not. Changes in JoinRecovery
  // only.
  bool chief() const;

  // From now on time counts for `phase`; returns the one before.
  // InvalidArgument: straggler wait, forming and finished are not for programs.
  StatusOr<task::RankPhase> Enter(task::RankPhase phase);
  // A step has ended. InvalidArgument: it is before the last one (ReportResumed
  // goes back), or a number is above 2^53.
  Status Step(const LightStep& step);
  // For progress bars; 0: not known.
  Status Plan(uint64_t total_steps, uint64_t epoch, uint64_t global_batch);

  // A measured value by name, of 1 to 31 bytes. Of values that are not finite,
  // the last finite one stays. ResourceExhausted: there are 16 other names.
  Status Report(std::string_view name, double value);

  // The rest is queued for the daemon and repeated after a reconnect, events
  // excepted. Texts are cut to the coordinator's limits.

  // A sentence for the job's events.
  Status ReportEvent(const std::string& sentence);
  // A file or directory; a relative `path` is one of the working directory.
  Status ReportArtifact(const std::string& name, const std::string& path);
  // The chief has published a complete checkpoint. FailedPrecondition: another
  // rank.
  Status ReportCheckpoint(int64_t step, const std::string& path, int64_t bytes);
  // The state contains `step` steps; 0: from the start. The job learns it from
  // the chief.
  Status ReportResumed(int64_t step);

  // Orders from outside, about the last step: the same answers on every rank
  // whose program asks after each step. See order_book.h.
  //
  // Whether to save a checkpoint now: once for each order, also before a stop.
  // It is done when the chief reports a checkpoint of this step or a later one.
  StatusOr<bool> CheckpointDue();
  // Whether to end now, with the exit code 0; from then on true.
  StatusOr<bool> ShouldStop();

  // Recoveries (docs/design/recovery.md), for processes that joined with
  // `recoverable`; others get FailedPrecondition. ----------------------------

  // The newest recovery of the generation, as the daemon says; 0: none. At the
  // start of a process: it replaces a lost one, and its peers have a state.
  StatusOr<uint32_t> Recovery();
  // This process has left the group of recovery `left`, because it lost `peers`
  // or their group broke, and waits for the next recovery.
  Status Park(uint32_t left, const std::vector<int>& peers);
  // Waits for a recovery above `above` and returns its number. Aborted: the
  // generation ended. DeadlineExceeded: none came.
  StatusOr<uint32_t> AwaitRecovery(uint32_t above, Duration timeout);
  // This process trains in the group of `recovery` (0: the first one).
  Status JoinRecovery(uint32_t recovery);
  // The program can train while ranks are away: said with the next
  // JoinRecovery.
  Status SetElastic(bool elastic);
  // The ranks that are not members of the group of `recovery`, ascending.
  // Aborted: a later recovery was announced, or the generation ended.
  StatusOr<std::vector<int>> Away(uint32_t recovery);
  // The rendezvous of the ranks of `recovery`. A key is written once. Aborted:
  // a later recovery has come, or the generation ended. DeadlineExceeded: no
  // rank put the key.
  Status Put(uint32_t recovery, const std::string& key, std::string_view value);
  StatusOr<std::string> Get(uint32_t recovery, const std::string& key,
                            Duration timeout);

  // Hands over what is queued, for at most a second, and leaves: another
  // process of this rank may join. OK if it is closed already.
  Status Close();

 private:
  class Impl;
  explicit LightSession(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_LIGHT_SESSION_H_
