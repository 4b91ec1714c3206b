// The communicator of a session's generation and recovery, which the link's
// thread may abort at any time: also while the ranks still form it.
#ifndef LOCKSTEP_WORKER_RUNTIME_SESSION_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_RUNTIME_SESSION_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/runtime/membership.h"
#include "worker/runtime/wait_page.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::runtime {

// Where ranks of an elastic job only return, none was lost: the communicator
// lives on until this rank has ended its step and leaves (CheckMembership), at
// most for kStepTime. Not over nccl, which does not tell the others that a rank
// has left: they make the step again.
//
// Used by the training loop's thread, except EndGeneration, Announce, Tick and
// CurrentWait, which any thread may call.
class SessionCommunicator {
 public:
  // How long a step may take to end when ranks return.
  static constexpr Duration kStepTime = std::chrono::seconds(60);

  // Null before Adopt and after Drop.
  collective::Communicator* get() const { return view_; }
  // Over nccl a reducer needs a communicator, for its memory. A rank of an
  // elastic job that is away, and makes its reducer, has one without peers. Its
  // memory goes to the one that follows. Null: none. Drop ends it, too.
  collective::Communicator* lone() const { return lone_.get(); }
  void SetLone(std::unique_ptr<collective::Communicator> lone) {
    lone_ = std::move(lone);
  }

  // The ranks of `recovery` form. Returns CommunicatorOptions::cancelled for
  // that: true once the generation has ended or a newer recovery has begun.
  std::shared_ptr<const std::atomic<bool>> BeginForming(uint32_t recovery);

  // Keeps `communicator`, formed of these members by `recovery`. Aborted: the
  // generation has ended meanwhile, or a newer recovery has begun; the
  // communicator is kept, and aborted.
  Status Adopt(std::unique_ptr<collective::Communicator> communicator,
               const Membership& membership, uint32_t recovery);
  // This rank has its state, and makes steps.
  void SetTrains();
  void Drop();
  // Aborts the communicator, so that peers do not wait for this rank.
  void Abort(std::string_view reason);
  // The same, unless ranks only return: others may be at the end of a step.
  void Leave(std::string_view reason);
  // Between two steps: an error, PEER_LOST, where a recovery has begun or the
  // generation has ended.
  Status CheckMembership();

  // Aborts the communicator, and any later one.
  void EndGeneration(const std::string& reason);
  // `recovery` begins, and `away` are not members: the same for communicators
  // of recoveries before, at once or when this rank had time to leave.
  void Announce(uint32_t recovery, std::span<const int> away);
  // Once a second or more often. Writes CurrentWait into the page.
  void Tick(MonoTime now);
  // The wait of this rank; its peer is a rank of the job.
  task::RankWait CurrentWait();
  // Of the page; opened by its owner, which outlives every Tick.
  WaitPage* wait_page() { return &wait_page_; }

 private:
  bool OnlyReturns(uint32_t recovery, std::span<const int> away) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AbortOlder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CancelForming() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  std::unique_ptr<collective::Communicator> communicator_ ABSL_GUARDED_BY(mu_);
  std::string end_reason_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint32_t recovery_ ABSL_GUARDED_BY(mu_) = 0;  // communicator_'s
  Membership membership_ ABSL_GUARDED_BY(mu_);  // communicator_'s
  bool trains_ ABSL_GUARDED_BY(mu_) = false;
  // Ranks return; until then this rank may end its step.
  std::optional<MonoTime> patience_ ABSL_GUARDED_BY(mu_);
  uint32_t newest_ ABSL_GUARDED_BY(mu_) = 0;
  // Of the newest BeginForming. A thread of a backend may look at it for longer
  // than this lives.
  std::shared_ptr<std::atomic<bool>> cancelled_ ABSL_GUARDED_BY(mu_);
  uint32_t forming_ ABSL_GUARDED_BY(mu_) = 0;
  WaitPage wait_page_;
  // For the loop's thread.
  collective::Communicator* view_ = nullptr;
  std::unique_ptr<collective::Communicator> lone_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_SESSION_COMMUNICATOR_H_
