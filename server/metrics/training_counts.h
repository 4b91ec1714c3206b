// Counts the work of a native job's ranks since the coordinator's start. Pure.
#ifndef LOCKSTEP_SERVER_METRICS_TRAINING_COUNTS_H_
#define LOCKSTEP_SERVER_METRICS_TRAINING_COUNTS_H_

#include <cstdint>
#include <optional>

#include "server/coordinator/snapshot.h"

namespace lockstep::server {

class TrainingCounts {
 public:
  explicit TrainingCounts(const Job& job);

  void NewGeneration(const Job& job);
  // Takes the reports of the current generation's ranks.
  void Take(const JobSnapshot& snapshot);

  // Steps that the chief committed, and samples of all ranks, repeated ones
  // included.
  double steps() const { return steps_.total; }
  double samples() const { return samples_.total; }
  // Floating-point operations of these samples. Nullopt until the chief reports
  // the cost of a sample.
  std::optional<double> flops() const { return flops_; }
  // Time in which the chief's training paused for checkpoints.
  double checkpoint_stall_seconds() const { return stall_.total; }
  int64_t committed() const { return committed_; }
  // The newest step that earlier generations committed; 0: none.
  int64_t redo_until() const { return redo_until_; }
  // True while it repeats steps of an earlier generation.
  bool redoes() const { return committed_ < redo_until_; }

 private:
  // The sum of a count that restarts with each generation.
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
  int32_t chief_ = 0;
  int64_t committed_ = 0;
  // An earlier generation did the steps below this one.
  int64_t redo_until_ = 0;
  // The generation was seen from its start.
  bool fresh_ = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_TRAINING_COUNTS_H_
