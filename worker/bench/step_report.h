// Timings of steps, with their text and JSON form. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_STEP_REPORT_H_
#define LOCKSTEP_WORKER_BENCH_STEP_REPORT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "worker/bench/options.h"
#include "worker/task/rank_page.h"

namespace lockstep::worker::bench {

// Seconds of a step.
struct StepTimes {
  double p50 = 0;
  double p99 = 0;  // of few steps the longest
  double mean = 0;
};

// Mean over the reduced steps of one rank, in seconds.
struct StepOfRank {
  double compute = 0;
  double busy = 0;     // some reduction was under way
  double exposed = 0;  // of these, held the step up
  double waited = 0;   // for the rank that came last

  // The part of the communication that computing hides.
  double hidden() const;
};

struct StepResults {
  StepBenchOptions model;
  int ranks = 1;
  int steps = 0;
  double flops_per_second = 0;  // of rank 0's computing
  uint64_t bytes = 0;           // reduced in a step
  double reductions = 0;        // in a step
  StepTimes alone;              // rank 0, while the others are idle
  StepTimes beside;             // all ranks, nothing reduced; the slowest's
  StepTimes step;               // all, reduced; the slowest rank's
  std::vector<StepOfRank> by_rank;
  // Over the last 100 steps at most.
  task::StragglerReading straggler;
  int64_t wrong = -1;  // gradients, of all ranks; -1: not checked

  // Of `ranks` times rank 0's rate alone.
  double efficiency() const;
  // Means over the ranks.
  StepOfRank mean() const;
  // Bytes a second that a ring's wires would carry while one is under way.
  double bus_bandwidth() const;
};

// p50, p99 (nearest rank) and mean.
StepTimes Summarize(std::vector<double> seconds);

// Lines with "#" first.
std::string StepText(const StepResults& results);

// {"collective": "step", ...}, seconds and bytes.
nlohmann::json StepJson(const StepResults& results);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_STEP_REPORT_H_
