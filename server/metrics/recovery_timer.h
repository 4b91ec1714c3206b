// Times the recoveries in place of one job (server/core/recovery.h) and their
// phases. Pure: callers pass `now`. Thread-compatible.
#ifndef LOCKSTEP_SERVER_METRICS_RECOVERY_TIMER_H_
#define LOCKSTEP_SERVER_METRICS_RECOVERY_TIMER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/base/histogram.h"
#include "server/core/job.h"

namespace lockstep::server {

// Over all jobs.
struct RecoveryTimings {
  RecoveryTimings();
  // By phase, in seconds:
  //   node   a rank's node is lost, and no other one has prepared for it yet
  //   wait   before a retry, as after any second failure in a row
  //   start  until all ranks run
  //   form   until all have joined: the communicator, and the transfer of the
  //          state
  //   total  from the decision until all ranks train again
  std::map<std::string, Histogram> phases;
  // By what was replaced: rank, node (its ranks run on another one), network
  // (no rank: the ranks formed anew), smaller (none yet: the others train
  // without them), return (they are back).
  std::map<std::string, int64_t> kinds;
};

class RecoveryTimer {
 public:
  // The job changed. A recovery that ends with a restart of the gang counts
  // nowhere here.
  void OnJob(const Job& before, const Job& after, MonoTime now,
             RecoveryTimings* timings);

 private:
  struct Recovery {
    MonoTime began;
    MonoTime phase_since;
    std::map<std::string, double> phases;
    // Sums over all ranks and tasks when it began.
    int64_t restarts = 0;
    size_t moves = 0;
    // Ranks that were away.
    size_t away = 0;
  };

  std::optional<Recovery> recovery_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_RECOVERY_TIMER_H_
