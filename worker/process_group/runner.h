// Runs collectives on a communicator, one after the other.
//
// Memory in one piece is reduced in place: it is the caller's. Lists go through
// staging memory, in chunks. The costs of the collectives, for n ranks:
//
//   all-reduce, broadcast  the communicator's own; out of place one copy more
//   reduce                 an all-reduce; a rank that is not the root makes it
//                          in staging memory
//   all-gather             the communicator's own; a list as output is staged
//                          whole, beyond kChunkBytes in memory that goes with
//                          the operation
//   reduce-scatter         the communicator's own, always in staging memory: it
//                          overwrites its input
//   gather                 an all-gather in staging memory: every rank receives
//                          what the root needs
//   scatter                a broadcast in staging memory: every rank receives
//                          all parts
//   all-to-all             an all-gather of the splits, then the communicator's
//                          own: every element goes to its rank only. In place
//                          one copy more, of the whole input. Parts that lie in
//                          several spans are copied, too. Inputs of up to
//                          kGatheredBytes, and those of a backend that has none
//                          (Communicator::HasAllToAll), are gathered in staging
//                          memory: every rank receives n times its part
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_RUNNER_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/process_group/request.h"
#include "worker/process_group/split_matrix.h"
#include "worker/process_group/staging.h"

namespace lockstep::worker::process_group {

// By one thread at a time.
class Runner {
 public:
  // `communicator` is borrowed; `any` is its AnyMemory.
  Runner(collective::Communicator* communicator, const collective::Buffer* any)
      : communicator_(*communicator), any_(any), staging_(communicator) {}

  // `request` is a collective of this group. Errors are those of the
  // communicator; FailedPrecondition also for splits of an all-to-all that do
  // not fit each other, the same on all ranks.
  Status Run(const Request& request, MonoTime deadline);

 private:
  // Calls function(first, count) for each chunk of `count` elements, of which
  // each has memory for `copies`; once for none.
  template <typename Function>
  Status ForChunks(const Request& request, size_t count, size_t copies,
                   const Function& function);
  // Runs one operation of the communicator on `count` elements at `data` or in
  // `buffer`.
  Status RunAt(collective::CollectiveKind kind, const Request& request,
               char* data, size_t count, MonoTime deadline);
  Status RunIn(collective::CollectiveKind kind, const Request& request,
               const collective::Buffer* buffer, size_t count,
               MonoTime deadline);
  Status RunSlice(collective::CollectiveKind kind, const Request& request,
                  const collective::Slice& slice, MonoTime deadline);

  Status Reduce(const Request& request, MonoTime deadline);
  Status Broadcast(const Request& request, MonoTime deadline);
  Status AllGather(const Request& request, MonoTime deadline);
  Status ReduceScatter(const Request& request, MonoTime deadline);
  Status Gather(const Request& request, MonoTime deadline);
  Status Scatter(const Request& request, MonoTime deadline);
  Status AllToAll(const Request& request, MonoTime deadline);
  StatusOr<std::vector<uint64_t>> GatherSplits(const Request& request,
                                               MonoTime deadline);
  // Both move `input` as `splits` says; they do not overlap the output.
  Status Exchange(const Request& request, const SpanList& input,
                  const SplitMatrix& splits, MonoTime deadline);
  Status GatherAll(const Request& request, const SpanList& input,
                   const SplitMatrix& splits, MonoTime deadline);

  collective::Communicator& communicator_;
  const collective::Buffer* const any_;
  Staging staging_;
  // Of all-to-alls: parts that lie in several spans, and an input in place.
  KeptMemory sends_;
  KeptMemory receives_;
  KeptMemory copy_;
  // Of the operation at hand, where it is more than one of the communicator.
  collective::OperationWords part_of_;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_RUNNER_H_
