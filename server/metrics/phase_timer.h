// Times the phases of a job's launch and recoveries. Pure: callers pass `now`.
#ifndef LOCKSTEP_SERVER_METRICS_PHASE_TIMER_H_
#define LOCKSTEP_SERVER_METRICS_PHASE_TIMER_H_

#include <map>
#include <optional>
#include <string>

#include "common/base/histogram.h"
#include "server/core/job.h"
#include "server/metrics/recovery_timer.h"

namespace lockstep::server {

// Histograms over all jobs, by phase.
struct JobTimings {
  JobTimings();
  // queue, stage, rendezvous, first_step, total.
  std::map<std::string, Histogram> launch;
  // teardown, reschedule, stage, rendezvous, restore, total.
  std::map<std::string, Histogram> recovery;
  // Of recoveries in place.
  RecoveryTimings in_place;
};

class PhaseTimer {
 public:
  // The job changed.
  void OnJob(const Job& before, const Job& after, Time now,
             JobTimings* timings);
  // The first step of the job's generation ended at `step`.
  void OnFirstStep(const Job& job, MonoTime step, Time now,
                   JobTimings* timings);
  // The job has started, and its first step is still to come.
  bool launching() const { return launching_; }

 private:
  struct Recovery {
    MonoTime began;
    MonoTime phase_since;
    std::map<std::string, double> phases;
    // When it became RUNNING again. The first step is still to come.
    std::optional<MonoTime> running_since;
  };

  void OnLaunch(const Job& job, JobTimings* timings);

  bool launching_ = false;
  std::optional<Recovery> recovery_;
  RecoveryTimer in_place_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_PHASE_TIMER_H_
