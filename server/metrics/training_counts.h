// What the ranks of a native job have done since the coordinator started. Pure.
#ifndef LOCKSTEP_SERVER_METRICS_TRAINING_COUNTS_H_
#define LOCKSTEP_SERVER_METRICS_TRAINING_COUNTS_H_

#include <cstdint>
#include <optional>

#include "server/coordinator/snapshot.h"

namespace lockstep {

class TrainingCounts {
 public:
  explicit TrainingCounts(const Job& job);

  void NewGeneration();
  // Takes what the ranks of the job's current generation report.
  void Take(const JobSnapshot& snapshot);

  // Steps that the chief committed and samples of all ranks. Those done again
  // are included.
  double steps() const { return steps_.total; }
  double samples() const { return samples_.total; }
  // Floating-point operations of these samples. nullopt until the chief reports
  // the cost of one sample.
  std::optional<double> flops() const { return flops_; }
  // Time in which the chief's training stood still to save.
  double checkpoint_stall_seconds() const { return stall_.total; }
  int64_t committed() const { return committed_; }
  // Whether it does steps that an earlier generation had done.
  bool redoes() const { return committed_ < redo_until_; }

 private:
  // The sum of a count that starts again with each generation.
  struct Grown {
    double total = 0;
    std::optional<double> last;
    void Take(double now) {
      if (last && now > *last) total += now - *last;
      last = now;
    }
  };

  Grown steps_;
  Grown samples_;
  std::optional<double> flops_;
  Grown stall_;
  int64_t committed_ = 0;
  // An earlier generation did the steps below it.
  int64_t redo_until_ = 0;
  // The generation was seen from its beginning.
  bool fresh_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_TRAINING_COUNTS_H_
