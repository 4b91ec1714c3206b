// Runs the chunks of operations (stage_plan.h) one behind the other: a few are
// between the hosts while the next one is reduced within. The last chunks of an
// operation overlap with the first ones of the next.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_CHUNK_PIPELINE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_CHUNK_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/hierarchical/host_agreement.h"
#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/hierarchical/sides.h"
#include "worker/collective/hierarchical/stage_plan.h"
#include "worker/collective/threaded_communicator.h"

namespace lockstep::worker::collective::hierarchical {

// Chunks that are between the hosts while the next is reduced within.
inline constexpr size_t kAhead = 2;

// Used by the thread that executes.
class ChunkPipeline {
 public:
  // All are borrowed. `scratch`: kAhead + 1 buffers of the communicator between
  // the hosts, of MostPackedBytes each; empty where this rank does not take
  // part there.
  ChunkPipeline(const HostLayout* layout, int rank, Sides* sides,
                HostAgreement* agreement, std::vector<const Buffer*> scratch);

  // The operations that wait behind the one that runs. Before the first Run.
  void SetQueue(OperationQueue* queue) { queue_ = queue; }

  // Runs `operation` to its end. The order of what is started on each side is
  // fixed by the plan and by what the ranks of the host agree upon, never by
  // what happens to end first: all ranks have the same order. After an error
  // nothing is under way any more.
  Status Run(const Operation& operation, MonoTime deadline);

 private:
  struct Running {
    Operation operation;
    StagePlan plan;
    size_t begun = 0;  // chunks, from the first

    bool all_begun() const { return begun == plan.chunks.size(); }
  };
  // A chunk that has begun and is not at its end.
  struct Pending {
    uint64_t operation;
    Chunk chunk;
    Slice slice;  // the operation's
    const Buffer* scratch;
    std::unique_ptr<Work> across;
  };

  std::unique_ptr<Running> Plan(const Operation& operation) const;
  Status RunChunks(const Operation& operation, MonoTime deadline);
  // Starts the next chunk between the hosts, once it is reduced in this one.
  Status Begin(Running* running, uint64_t number, MonoTime deadline);
  Status BeginAhead(const Running& running, uint64_t number, MonoTime deadline);
  Status FinishFirst(MonoTime deadline);
  Status RunWithin(Operation operation, MonoTime deadline);
  static void Pack(const Pending& pending);
  void Unpack(const Pending& pending) const;

  const HostLayout& layout_;
  const int rank_;
  Sides& sides_;
  HostAgreement& agreement_;
  const std::vector<const Buffer*> scratch_;
  uint64_t scratch_turn_ = 0;
  OperationQueue* queue_ = nullptr;

  // Operations so far; chunks that have begun, of the operation that runs and
  // perhaps of the next; and that next one.
  uint64_t operations_ = 0;
  std::deque<Pending> pending_;
  std::unique_ptr<Running> ahead_;
};

}  // namespace lockstep::worker::collective::hierarchical

#endif  // LOCKSTEP_WORKER_COLLECTIVE_HIERARCHICAL_CHUNK_PIPELINE_H_
