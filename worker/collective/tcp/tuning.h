// Improves a mesh's plan by measuring: all ranks at the same time, step by
// step. Rank 0 decides each step (tuner.h), and shares it through a tree, so a
// step costs O(log ranks) messages one after the other.
//
// It runs as operations of the mesh with a purpose of their own: a rank that
// runs something else meanwhile is found and named, and aborts, deadlines and
// deaths end it as they end any operation.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNING_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNING_H_

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/tcp/algorithms.h"
#include "worker/collective/tcp/connect.h"
#include "worker/collective/tcp/mesh.h"
#include "worker/collective/tcp/plan.h"
#include "worker/collective/tcp/tuner.h"

namespace lockstep::worker::collective::tcp {

class Tuning {
 public:
  // All borrowed. `address`: this rank's, for further connections.
  Tuning(Mesh* mesh, Algorithms* algorithms, const Neighbours* neighbours,
         const std::string& address, MonoTime deadline);

  // Collective; returns rank 0's plan on all ranks, which the algorithms and
  // the connections follow then. `plan`: what they follow now. Rank 0's
  // `budget` counts; one step may exceed it.
  StatusOr<Plan> Run(const Plan& plan, Duration budget);

  // Collective: makes algorithms and connections follow `to`, which is the same
  // on all ranks, instead of `from`. Unavailable where a rank cannot get the
  // connections.
  Status Follow(const Plan& from, const Plan& to);

 private:
  // Rank 0's next step, on all ranks. `limit`: for connecting.
  StatusOr<TuneStep> Share(TuneStep step, Duration* limit);
  Status Measure(const TuneStep& step);
  // Whether all ranks have `streams` connections with each peer.
  StatusOr<bool> Connect(int streams, Duration limit);
  StatusOr<std::vector<Connection>> Open(StreamRange streams, Duration limit);
  Status ExchangePorts(uint16_t mine, std::vector<Place>* places);
  // Runs one operation on `count` elements of data_.
  Status RunOne(CollectiveKind kind, size_t count, DataType type, ReduceOp op);

  Mesh* const mesh_;
  Algorithms* const algorithms_;
  const Neighbours& neighbours_;
  const std::string address_;
  const MonoTime deadline_;
  int opened_ = 1;
  std::vector<float> data_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNING_H_
