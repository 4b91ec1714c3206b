// Recovery in place: a lost rank is replaced, and the other processes keep
// their state (docs/design/recovery.md).
//
//   Session::Join({.recoverable = true}), Form
//   bool recovering = session->identity().recovering;
//   if (!recovering) ... restore a checkpoint
//   MakeReducer
//   Status status = recovering ? OkStatus() : Train();   // steps, then Settle
//   while (recovering || CanRecover(*session, status)) {
//     LOCKSTEP_ASSIGN_OR_RETURN(const Recovered recovered,
//         Recover(session, status, reducer.get(), replica));
//     ... obey recovered.orders
//     recovering = false;
//     status = Train();                  // from reducer->step() on
//   }
//
// After Recover all ranks have the same state, and gradients are zero. The step
// under way on a survivor is thrown away: at most one step is computed again.
// The process that replaces a lost rank runs the same code.
#ifndef LOCKSTEP_WORKER_RUNTIME_RECOVERY_H_
#define LOCKSTEP_WORKER_RUNTIME_RECOVERY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/leveling.h"
#include "worker/runtime/membership.h"
#include "worker/runtime/reducer.h"
#include "worker/runtime/session.h"

namespace lockstep::worker::runtime {

// The state of one rank.
struct ReplicaState {
  // Parameters and the optimizer's state, in place; as they are after the last
  // Commit. Number, order and sizes are the same on all ranks.
  collective::StateMemory memory;
  // The same of what lies on the GPU, where the backend is nccl. The GPU's
  // memory of a survivor stays what and where it is.
  collective::DeviceState device;
  // The rest of the state that all ranks share: the position in the data,
  // results of evaluations. At most 32 MiB. Both may be empty.
  std::function<std::string()> save;
  // Takes what `save` returned on a rank with the newest state. Called on every
  // rank, so that the ranks go on alike.
  std::function<Status(std::string_view)> load;
};

struct Recovered {
  uint32_t recovery = 0;
  // Steps in the state.
  int64_t step = 0;
  // This rank got its state from a peer.
  bool received = false;
  // This rank is the chief, and was not when Recover was called or meanwhile.
  bool became_chief = false;
  // The chief got its state from a peer: it is a new process, which may not
  // know what the one before it had done.
  bool chief_received = false;
  // Of the last Commit on the ranks that had the newest state: stop and drain,
  // which this rank may know already. How its checkpoint in flight ended: as a
  // rule it is given up, and begins anew with the next Commit or Settle.
  StepOrders orders;
  // Since Recover was called, and of that for the levelling.
  Duration time{};
  Duration level_time{};
  // Received by each rank that lacked the state.
  int64_t bytes = 0;
};

// The ranks that form the communicator and the shards of each: all, with a
// shard each, unless the job is elastic. Changes in Recover only. Rank 0 of the
// communicator is the chief.
const Membership& MembershipOf(const Session& session);

// Before each step of an elastic job: an error for CanRecover when ranks that
// were away return, and wait for this one in Recover. Without the call they
// wait for 60 s, and the step under way is then thrown away. Over nccl with
// several members it is thrown away at once, and made again.
Status CheckMembership(Session* session);

// `error`, of a reducer or of a small collective, is the loss of a peer after
// which the ranks may go on in place.
bool CanRecover(const Session& session, const Status& error);

// Waits for the next recovery, forms the ranks anew and levels them, again
// where another rank is lost meanwhile. `lost` is the error; OK on a rank that
// replaces one (SessionIdentity::recovering). Call it before the optimizer has
// changed the state of a step, or after Commit. gradient(i) stays where it is,
// unless this rank takes over an order that it has not learned.
//
// Errors: `lost` where no recovery is possible; with reason PEER_LOST, that the
// generation was ended or no recovery came in SessionOptions::hold_timeout;
// with CONFIG_MISMATCH, that a rank differs; DIVERGED; InvalidArgument where a
// state lies on a device and the backend has none, or `device` has no stream;
// Internal where the device does not stop or is too late. After that the
// process exits without waiting for the device. Pass them to Leave.
StatusOr<Recovered> Recover(Session* session, const Status& lost,
                            Reducer* reducer, const ReplicaState& state);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_RECOVERY_H_
