// Session's inside: what joins the link, the communicator and the page.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_IMPL_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_IMPL_H_

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/address_range.h"
#include "worker/rank_link/client.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/reduction_planner.h"
#include "worker/runtime/session.h"
#include "worker/runtime/small_collectives.h"
#include "worker/runtime/step_controller.h"

namespace lockstep {

// Reason of the error with which rank 0 leaves when the last checkpoint that
// was ordered was not saved.
inline constexpr char kReasonCheckpointFailed[] = "CHECKPOINT_FAILED";
// As in worker/checkpoint/resume.h, which is not known here.
inline constexpr char kReasonNoCheckpoint[] = "NO_CHECKPOINT";
inline constexpr char kReasonOutputMissing[] = "OUTPUT_MISSING";

// What is the process's (link, page, options) stays; what is the generation's
// (communicator, collectives) is thrown away by the next Form.
class Session::Impl {
 public:
  explicit Impl(SessionOptions options) : options_(std::move(options)) {}
  ~Impl();

  Status Join();
  Status Form(const ConfigMap& config);
  StatusOr<std::unique_ptr<Reducer>> MakeReducer(
      const std::vector<Parameter>& parameters, const ReducerOptions& options);
  // FailedPrecondition before Form.
  StatusOr<SmallCollectives*> collectives();
  void Send(const v1::RankReport& report);
  void SendEvent(const std::string& sentence,
                 EventKind kind = EventKind::kOther);
  StatusOr<bool> AwaitSpace(const Status& mine);
  int Leave(const Status& result);
  void OnAbort(const std::string& why);
  // DataLoss, with the reason CHECKPOINT_FAILED, on rank 0: the last checkpoint
  // that was tried was not saved. An attempt that was ordered to stop early
  // goes on elsewhere from an older one, so it counts as OK.
  Status LastCheckpoint() const;

  const SessionOptions options_;
  std::string job_ = "local";
  uint64_t generation_ = 1;
  int rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int attempt_ = 1;
  double cpus_ = 0;
  std::vector<int> gpus_;
  std::string output_directory_;
  int64_t checkpoint_interval_ = 0;
  int checkpoint_keep_ = 3;
  std::vector<SessionLineage> lineage_;
  SessionResume resume_;
  std::atomic<bool> drain_ = false;
  // Steps of the last checkpoint that this rank voted on, and of the newest one
  // that it reported as saved; -1: none.
  int64_t tried_checkpoint_ = -1;
  int64_t saved_checkpoint_ = -1;
  bool stopped_early_ = false;
  // How often AwaitSpace has waited.
  int space_waits_ = 0;

  std::unique_ptr<Progress> progress_;

  // For the loop's thread; null before Form.
  Communicator* communicator() { return communicator_view_; }
  // Of this generation; absent before Form.
  std::optional<ReductionPlanner> planner_;

  std::unique_ptr<RankLink> link_;

 private:
  std::string Label() const {
    return fmt::format("job {} g{}", job_, generation_);
  }
  void TakeWelcome(const v1::RankWelcome& welcome);
  Status Plan();
  StatusOr<std::unique_ptr<Communicator>> FormRanks();
  StatusOr<std::unique_ptr<Communicator>> FormByPlan(
      CommunicatorOptions options);
  // How the ranks reduce, and why so: once a generation, by rank 0, with
  // `buckets` where that is not empty.
  void ReportChoice(const std::string& buckets);
  // What the planner has to say, by rank 0.
  void ReportPlan();
  Status Adopt(std::unique_ptr<Communicator> communicator);
  Status Compare(const ConfigMap& config, MonoTime deadline);
  void Offer(StepController* controller);
  void DropCommunicator();

  // Where gradients lie in every generation; outlives the communicator. Null
  // where there are no addresses to be had: then they move.
  std::unique_ptr<AddressRange> addresses_;

  // The link's thread aborts the communicator, under mu_.
  Mutex mu_;
  std::unique_ptr<Communicator> communicator_ ABSL_GUARDED_BY(mu_);
  std::string abort_reason_ ABSL_GUARDED_BY(mu_);
  bool aborted_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::RankDirective> directives_ ABSL_GUARDED_BY(mu_);
  Communicator* communicator_view_ = nullptr;
  std::optional<SmallCollectives> collectives_;
  uint64_t fingerprint_ = 0;
  // CommunicatorOptions::choice, and what of it Communicator::Plan was when
  // it was formed; empty with one rank, and once it has been told.
  std::string choice_;
  std::string formed_plan_;
  // What the daemon was told last.
  std::string reported_plan_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_IMPL_H_
