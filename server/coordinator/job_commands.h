// The commands on jobs. Each is committed together with its answer, so that a
// repeat of the command gets the first answer.
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
#include "server/coordinator/history_guard.h"
#include "server/coordinator/idempotency_cache.h"
#include "server/coordinator/options.h"
#include "server/coordinator/queue_scheduler.h"
#include "server/coordinator/reconciler.h"
#include "server/coordinator/snapshot.h"
#include "server/coordinator/store_writer.h"
#include "server/core/holding.h"

namespace lockstep {

// A job that is submitted.
struct Submission {
  JobSpec spec;
  // The job as the user wrote it, where that was in AI Platform's words.
  std::optional<TrainingJob> training;
  // What was settled on the way, for the job's history.
  std::vector<std::string> events;
};

// What a person changes of a job.
struct JobUpdate {
  bool clear_labels = false;
  std::vector<std::string> remove_labels;
  // Set after the others were removed.
  std::map<std::string, std::string> set_labels;
  // Only for a job that has not ended; absent: it stays.
  std::optional<int32_t> priority = std::nullopt;
  // Nothing is changed unless the job is at this version; 0: at any version.
  int64_t version = 0;
};

// Where a job would go now.
struct JobPlan {
  // Empty: the job would wait, and `waiting` says why, or it can never run
  // here.
  std::vector<TaskPlacement> placement;
  Cause waiting;
  // Every reason why it can never run here.
  std::vector<std::string> never_fits;
};

class JobCommands {
 public:
  // Encodes the answer to a command, to be stored with its effect.
  using Encode = std::function<std::string(const JobSnapshot&)>;

  // All outlive it.
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
  // `parts` are used with `mu` held only.
  JobCommands(Mutex* mu, const Parts& parts) : mu_(*mu), parts_(parts) {}

  // Returns the first answer to a command that is repeated; nullopt: it is new.
  StatusOr<std::optional<std::string>> AnswerTo(const RequestKey& request);

  // All commands return the encoded answer. Those on a job ask `may` whether
  // the caller may change it.
  StatusOr<std::string> Submit(const RequestKey& request,
                               const Submission& submission,
                               const std::string& owner, const Encode& encode);
  StatusOr<std::string> Submit(const RequestKey& request, const JobSpec& spec,
                               const std::string& owner, const Encode& encode);
  StatusOr<std::string> CancelJob(const RequestKey& request,
                                  const JobName& name, const JobCheck& may,
                                  const Encode& encode);
  // FailedPrecondition: the job is not at `update.version` any more, or has
  // ended and would get a priority.
  StatusOr<std::string> UpdateJob(const RequestKey& request,
                                  const JobName& name, const JobUpdate& update,
                                  const JobCheck& may, const Encode& encode);
  StatusOr<std::string> RequestCheckpoint(const RequestKey& request,
                                          const JobName& name,
                                          const JobCheck& may,
                                          const Encode& encode);
  // Errors as of RestoreTo (server/core/holding.h).
  StatusOr<std::string> RestoreJob(const RequestKey& request,
                                   const JobName& name,
                                   const RestoreTarget& target,
                                   const JobCheck& may, const Encode& encode);
  // Deletes a job that has ended. Its name stays taken. `answer` is the encoded
  // answer.
  StatusOr<std::string> DeleteJob(const RequestKey& request,
                                  const JobName& name, const JobCheck& may,
                                  const std::string& answer);

  // What would become of `spec` of `owner`; changes nothing. Refuses what
  // Submit would refuse, but for what can never fit, which the plan says.
  StatusOr<JobPlan> Plan(const JobSpec& spec, const std::string& owner);

 private:
  // AlreadyExists, FailedPrecondition: another job has its name, or writes to
  // its directory.
  Status CheckNotTaken(const JobSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ResourceExhausted: `owner` has too many jobs that have not ended.
  Status CheckQuota(const std::string& owner, const JobSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A job that has not ended and writes where `spec` will.
  std::optional<JobName> SharesOutput(const JobSpec& spec) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Commits `job` with the answer to the command that made it so.
  StatusOr<std::string> Answer(const RequestKey& request, Job job,
                               const Encode& encode, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A command that makes one job of another, or says why not.
  StatusOr<std::string> Change(
      const RequestKey& request, const JobName& name, const JobCheck& may,
      const Encode& encode,
      const std::function<StatusOr<Job>(const Job&, Time)>& change)
      ABSL_LOCKS_EXCLUDED(mu_);

  Mutex& mu_;
  const Parts parts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_JOB_COMMANDS_H_
