// Learns the order in which gradients become ready, and makes rank 0's order
// that of all ranks. Where an earlier generation has learned one, returns that
// after the same step, and learns nothing.
//
// It learns after step 2, or soon after it where rank 0 had no samples: the
// first step of a program may be unlike the others. The step's number decides,
// not the number of steps of this generation, so that a run that goes on from
// an earlier checkpoint learns the same. Thread-compatible.
#ifndef LOCKSTEP_WORKER_RUNTIME_ORDER_LEARNER_H_
#define LOCKSTEP_WORKER_RUNTIME_ORDER_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::runtime {

// The order in which buckets are filled once `at` steps are in the state;
// empty: none has been learned.
struct LearnedOrder {
  std::vector<uint32_t> order;
  int64_t at = 0;
};

class OrderLearner {
 public:
  // No order is learned before this many steps are in the state.
  static constexpr int64_t kFrom = 2;

  // Borrows the communicator. Does nothing where there is no order to learn.
  OrderLearner(collective::Communicator* communicator, size_t parameters,
               bool learns, LearnedOrder known = {})
      : communicator_(communicator),
        parameters_(parameters),
        learning_(learns && known.order.empty()),
        known_(std::move(known)) {}
  Status Allocate();

  // A recovery: goes on in another communicator. `learns` and `known` are those
  // of the rank whose state this one has.
  void Rebind(collective::Communicator* communicator) {
    communicator_ = communicator;
    words_ = nullptr;
  }
  Status Resume(bool learns, LearnedOrder known);
  bool learning() const { return learning_; }
  const LearnedOrder& known() const { return known_; }

  void BeginStep() { seen_.clear(); }
  void See(size_t parameter) {
    if (learning_) seen_.push_back(static_cast<uint32_t>(parameter));
  }
  // Called by all ranks once `committed` steps are in the state. Returns the
  // order, once; else empty. The communicator's errors.
  StatusOr<std::vector<uint32_t>> Agree(int64_t committed, Duration timeout);

 private:
  collective::Communicator* communicator_;
  const size_t parameters_;
  bool learning_;
  LearnedOrder known_;
  const collective::Buffer* words_ = nullptr;  // The communicator's.
  std::vector<uint32_t> seen_;                 // In the step under way.
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_ORDER_LEARNER_H_
