// The implementation of Session: connects the link, the communicator and the
// status page.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_IMPL_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_IMPL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "worker/collective/address_range.h"
#include "worker/rank_link/client.h"
#include "worker/runtime/membership.h"
#include "worker/runtime/plan_reports.h"
#include "worker/runtime/progress.h"
#include "worker/runtime/recovery.h"
#include "worker/runtime/reduction_planner.h"
#include "worker/runtime/session.h"
#include "worker/runtime/session_communicator.h"
#include "worker/runtime/session_orders.h"
#include "worker/runtime/small_collectives.h"
#include "worker/runtime/step_controller.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::worker::runtime {

// Reason of the error with which the chief leaves when the last checkpoint that
// was ordered was not saved.
inline constexpr char kReasonCheckpointFailed[] = "CHECKPOINT_FAILED";
// As in worker/checkpoint/resume.h, which is not known here.
inline constexpr char kReasonNoCheckpoint[] = "NO_CHECKPOINT";
inline constexpr char kReasonOutputMissing[] = "OUTPUT_MISSING";

// Names a communicator, in handshakes and control words. Those of one
// generation differ in their low bits, too, which are all that a control word
// has.
inline uint64_t CommunicatorNumber(uint64_t generation, uint32_t recovery) {
  return generation ^ (recovery * 0x9e3779b97f4a7c15ull);
}

// The members in the recovery of `welcome`.
Membership MembershipIn(const v1::RankWelcome& welcome, int world_size,
                        int rank);

// The process's parts (link, status page, options) stay; the next Form, and a
// recovery, throw away those of the communicator.
class Session::Impl {
 public:
  explicit Impl(SessionOptions options) : options_(std::move(options)) {}
  ~Impl();

  Status Join();
  Status Form(const ConfigMap& config);
  StatusOr<std::unique_ptr<Reducer>> MakeReducer(
      const std::vector<Parameter>& parameters, const ReducerOptions& options);
  Status CheckMembership() { return communicator_.CheckMembership(); }
  // FailedPrecondition before Form.
  StatusOr<SmallCollectives*> collectives();
  void Send(const v1::RankReport& report);
  void SendEvent(const std::string& sentence,
                 EventKind kind = EventKind::kOther);
  StatusOr<bool> AwaitSpace(const Status& mine);
  bool CanRecover(const Status& error) const;
  StatusOr<Recovered> Recover(const Status& lost, Reducer* reducer,
                              const ReplicaState& state);
  int Leave(const Status& result);
  // CheckpointRecord::Check, on the chief, where the job has a place for
  // checkpoints.
  Status LastCheckpoint() const;

  const SessionOptions options_;
  SessionIdentity identity_;
  // Of the communicator; before Form, of all ranks.
  Membership membership_;
  PendingOrders orders_;
  CheckpointRecord checkpoints_;
  std::unique_ptr<Progress> progress_;

  // Null before Form.
  collective::Communicator* communicator() { return communicator_.get(); }
  // This generation's; absent before Form.
  std::optional<ReductionPlanner> planner_;

  std::unique_ptr<rank_link::RankLink> link_;

 private:
  // session_recovery.cc.
  class Recovering;

  // Kept of the forming before, for recoveries.
  struct Kept {
    // The recovery of the communicator; 0: none.
    uint32_t recovery = 0;
    // SessionOptions::recoverable, where the backend can.
    bool recoverable = false;
    // The same of SessionOptions::elastic, where it has an effect.
    bool elastic = false;
    // It is, and asks for nccl. Members add their shards up there, so the order
    // of the sums depends on the members (bucket_reduction.h).
    bool elastic_over_nccl = false;
    // This rank has a state. A replacement has none before it is levelled.
    bool has_state = true;
    // Form's and MakeReducer's, for comparing.
    ConfigMap config = {};
    ConfigMap shape = {};
    // The program's; null before MakeReducer.
    RecoverableReducer* reducer = nullptr;
  };

  std::string Label() const;
  // The secret of the communicator's members.
  std::string Key() const;
  void TakeWelcome(const v1::RankWelcome& welcome);
  // Form of a rank that replaces a lost one. `lost`: it has formed before, and
  // lost the ranks again while it made its reducer. Returns `lost` where no
  // recovery may follow that.
  Status FormRecovering(const Status& lost);
  Status Plan();
  // Meets the other ranks in `store`, until `deadline`. Null: no rank, as in
  // SessionCommunicator::lone.
  StatusOr<std::unique_ptr<collective::Communicator>> FormRanks(
      collective::RendezvousStore* store, MonoTime deadline);
  StatusOr<std::unique_ptr<collective::Communicator>> FormByPlan(
      collective::CommunicatorOptions options);
  // Reports how the ranks reduce, and why so: once a generation, by the chief,
  // with `buckets` where that is not empty.
  void ReportChoice(const std::string& buckets);
  // Notes what recoveries compare.
  Status KeepShape(const ConfigMap& shape,
                   const std::vector<Parameter>& parameters,
                   ReducerOptions options);
  // Reports the planner's notes and its plan, by the chief.
  void ReportPlan();
  Status Compare(const ConfigMap& config, MonoTime deadline);
  void DropCommunicator();

  // The addresses of gradients in every generation; outlives the communicator.
  // Null: the system gives none, and gradients move.
  std::unique_ptr<collective::AddressRange> addresses_;
  SessionCommunicator communicator_;
  std::optional<SmallCollectives> collectives_;
  uint64_t fingerprint_ = 0;
  Kept kept_;
  PlanReports plan_reports_;
  int space_waits_ = 0;  // how often AwaitSpace has waited
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_IMPL_H_
