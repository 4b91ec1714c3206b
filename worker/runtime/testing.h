// For tests: N ranks as threads of one process, over a shared reducer.
#ifndef LOCKSTEP_WORKER_RUNTIME_TESTING_H_
#define LOCKSTEP_WORKER_RUNTIME_TESTING_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::runtime {

// Operations run when the last rank has started them; sums are made in rank
// order. Knows all-reduce, all-gather and broadcast of float32, float64,
// bfloat16 (summed in float32, rounded once) and bytes, and barriers.
class FakeGroup {
 public:
  explicit FakeGroup(int size);
  ~FakeGroup();

  // Once a rank. Must not outlive the group. One that is inline does nothing
  // but in Poll and Wait, and only ends what all have moved on.
  std::unique_ptr<collective::Communicator> Make(
      int rank,
      collective::ProgressMode progress = collective::ProgressMode::kThread);
  // From now on the others find that `rank` is gone.
  void Kill(int rank);
  // Whether `rank` has done its part and waits for another's at this moment.
  bool Waits(int rank);
  int size() const { return size_; }

 private:
  friend class FakeCommunicator;
  struct Pending {
    std::vector<collective::Operation> operations;  // By rank.
    std::vector<bool> moved_on;         // By rank.
    int count = 0;
    bool done = false;
    MonoTime ended;  // Once done.
  };

  Pending* At(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MoveOn(uint64_t number, int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Execute(Pending* pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int size_;
  Mutex mu_;
  CondVar changed_;
  std::map<uint64_t, Pending> pending_ ABSL_GUARDED_BY(mu_);
  int dead_ ABSL_GUARDED_BY(mu_) = -1;
  std::map<int, uint64_t> waiting_ ABSL_GUARDED_BY(mu_);  // By rank: for what.
};

// Runs fn(rank) for 0..n-1, each on a thread of its own, and joins them.
void RunRanks(int n, const std::function<void(int rank)>& fn);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_TESTING_H_
