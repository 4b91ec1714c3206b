// Commands on jobs. Each is committed together with its answer, so that a
// repeated command gets the first answer.
//
// Thread-safe: each call takes the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_JOB_COMMANDS_H_
#define LOCKSTEP_SERVER_COORDINATOR_JOB_COMMANDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "server/coordinator/billing.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/committer.h"
#include "server/coordinator/found_ranks.h"
#include "server/coordinator/history_guard.h"
#include "server/coordinator/idempotency_cache.h"
#include "server/coordinator/options.h"
#include "server/coordinator/queue_scheduler.h"
#include "server/coordinator/reconciler.h"
#include "server/coordinator/snapshot.h"
#include "server/coordinator/store_writer.h"
#include "server/core/hang_verdict.h"
#include "server/core/holding.h"

namespace lockstep::server {

// A submitted job.
struct Submission {
  JobSpec spec;
  // The user's job if it is in AI Platform's terms.
  std::optional<TrainingJob> training;
  // Decisions at submission, for the job's history.
  std::vector<std::string> events;
};

// A user's changes to a job.
struct JobUpdate {
  bool clear_labels = false;
  std::vector<std::string> remove_labels;
  // Set after removals.
  std::map<std::string, std::string> set_labels;
  // For an unfinished job only. Absent for no change.
  std::optional<int32_t> priority = std::nullopt;
  // Applies only if the job is at this version. 0 for any.
  int64_t version = 0;
};

// The current placement of a job.
struct JobPlan {
  // Empty if the job would wait, as `waiting` says, or can never run here.
  std::vector<TaskPlacement> placement;
  Cause waiting;
  // Every reason that it can never run here.
  std::vector<std::string> never_fits;
};

class JobCommands {
 public:
  // Encodes a command's answer, which is stored with its effect.
  using Encode = std::function<std::string(const JobSnapshot&)>;

  // All outlive this object.
  struct Parts {
    const CoordinatorOptions* options;
    const Clock* clock;
    const StoreIdentity* identity;
    ClusterState* state;
    const StoreWriter* writer;
    const Billing* billing;
    const HistoryGuard* guard;
    const QueueScheduler* scheduler;
    Committer* committer;
    Reconciler* reconciler;
  };
  // `parts` are used only while `mu` is held.
  JobCommands(Mutex* mu, const Parts& parts) : mu_(*mu), parts_(parts) {}

  // Returns the first answer to a repeated command. Nullopt for a new one.
  StatusOr<std::optional<std::string>> AnswerTo(const RequestKey& request);

  // All commands return the encoded answer. `may` checks that the caller may
  // change the job.
  StatusOr<std::string> Submit(const RequestKey& request,
                               const Submission& submission,
                               const std::string& owner, const Encode& encode);
  StatusOr<std::string> Submit(const RequestKey& request, const JobSpec& spec,
                               const std::string& owner, const Encode& encode);
  StatusOr<std::string> CancelJob(const RequestKey& request,
                                  const JobName& name, const JobCheck& may,
                                  const Encode& encode);
  // FailedPrecondition if the job is not at `update.version`, or has ended and
  // would get a priority.
  StatusOr<std::string> UpdateJob(const RequestKey& request,
                                  const JobName& name, const JobUpdate& update,
                                  const JobCheck& may, const Encode& encode);
  StatusOr<std::string> RequestCheckpoint(const RequestKey& request,
                                          const JobName& name,
                                          const JobCheck& may,
                                          const Encode& encode);
  // Errors as in RestoreTo (server/core/holding.h).
  StatusOr<std::string> RestoreJob(const RequestKey& request,
                                   const JobName& name,
                                   const RestoreTarget& target,
                                   const JobCheck& may, const Encode& encode);
  // Errors as in ResizeTo (server/core/rescale.h).
  StatusOr<std::string> ResizeJob(const RequestKey& request,
                                  const JobName& name, int32_t tasks,
                                  const JobCheck& may, const Encode& encode);
  // Deletes an ended job. Its name stays taken. `answer` is the encoded answer.
  StatusOr<std::string> DeleteJob(const RequestKey& request,
                                  const JobName& name, const JobCheck& may,
                                  const std::string& answer);

  // Adds to the job's history what evidence of `ranks`, which had stalled, says
  // about the cause. No effect if the job has ended or is another one by now.
  void RecordVerdict(const FoundRanks& ranks, const HangVerdict& verdict);

  // Adds to the job's history that a user entered `ranks`, so that an owner
  // sees what others did. The audit log has every session; the history has at
  // most kMaxSessionEvents, with `once` the same text once for a generation. No
  // effect if the job has ended or is another one by now.
  static constexpr int64_t kMaxSessionEvents = 20;
  void RecordSession(const FoundRanks& ranks, const std::string& what,
                     bool once);

  // Plans `spec` of `owner` without changes. Rejects what Submit rejects,
  // except jobs that can never fit, which the plan reports.
  StatusOr<JobPlan> Plan(const JobSpec& spec, const std::string& owner);

 private:
  // AlreadyExists, FailedPrecondition if another job has its name or writes to
  // its directory.
  Status CheckNotTaken(const JobSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ResourceExhausted if `owner` has too many unfinished jobs.
  Status CheckQuota(const std::string& owner, const JobSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns an unfinished job that writes to the output directory of `spec`.
  std::optional<JobName> SharesOutput(const JobSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Commits `job` with the command's answer.
  StatusOr<std::string> Answer(const RequestKey& request, Job job,
                               const Encode& encode, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Applies a command that changes one job.
  StatusOr<std::string> Change(
      const RequestKey& request, const JobName& name, const JobCheck& may,
      const Encode& encode,
      const std::function<StatusOr<Job>(const Job&, Time)>& change)
      ABSL_LOCKS_EXCLUDED(mu_);

  Mutex& mu_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_JOB_COMMANDS_H_
