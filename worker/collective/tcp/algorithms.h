// The collectives over a mesh. All ranks of it run the same operations with
// the same plan; every function returns when this rank has its result and
// nothing of the operation is left on its connections.
//
// All-reduce: recursive doubling, recursive halving and doubling (Rabenseifner,
// "Optimization of Collective Reduction Operations", 2004), or a ring
// (Patarasuk and Yuan, 2009) of which several segments are on their way at a
// time. Each combines its operands in an order that the plan fixes, the same on
// every rank.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_ALGORITHMS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_ALGORITHMS_H_

#include <cstddef>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/tcp/combine.h"
#include "worker/collective/tcp/mesh.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/vector.h"

namespace lockstep::worker::collective::tcp {

// One thread at a time.
class Algorithms {
 public:
  // `mesh` is borrowed and has the connections of PeersOf(plan).
  Algorithms(Mesh* mesh, const Plan& plan);

  // Between operations; with the same peers.
  void SetPlan(const Plan& plan);
  // Between operations: gives back memory of large ones.
  void Trim();

  // After mesh->Begin(operation).
  Status Run(const Operation& operation);

 private:
  Status AllReduce(const Operation& operation, const Vector& vector);
  Status AllReduceFloats(const Vector& vector);
  Status AllReduceWidened(const Operation& operation, const Vector& vector);
  Status AllReduceExchanged(const Vector& vector, bool gather);
  Status Broadcast(const Vector& vector, int root);
  Status AllGather(const Vector& vector);
  Status AllToAll(const Operation& operation);
  Status Barrier();

  // Announces the operation that this rank runs to `peer`. A rank announces an
  // operation to a peer before it waits for it: so of two ranks that run
  // different operations and would wait for ever, one finds out.
  Status Announce(int peer);
  Status GiveTo(int peer, const void* data, size_t bytes);
  Status TakeFrom(int peer, void* data, size_t bytes);

  // The upper one of a pair combines both's, and acts for both; the lower one
  // gets the result at the end.
  Status Fold(const Vector& vector);
  Status Unfold(const Vector& vector);
  Status Doubling(const Vector& vector);
  Status Halving(const Vector& vector);
  Status Combined(const Vector& vector, int partner, Range mine,
                  const char* theirs, bool last);

  Status Ring(const Vector& vector, bool reduces, bool gathers);
  Status Chain(const Vector& vector, int root);
  // The stream of piece `number` of a chain.
  int StreamOf(size_t number) const {
    return number % mesh_->links()->streams();
  }
  Status Tree(const Vector& vector, int root);

  char* Scratch(size_t bytes);

  Mesh* const mesh_;
  Plan plan_;
  const int rank_;
  const int size_;
  const Group group_;
  const int member_;  // -1: another acts for this rank
  std::vector<char> scratch_;
  std::vector<float> wide_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_ALGORITHMS_H_
