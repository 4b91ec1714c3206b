// Holds predicted steps against real ones of the reducer that jobs use: of
// step_model_check (check.cc).
#ifndef LOCKSTEP_TESTS_BENCH_MODEL_STEP_RUNS_H_
#define LOCKSTEP_TESTS_BENCH_MODEL_STEP_RUNS_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/model/model.h"
#include "tests/bench/model/rank_runs.h"

namespace lockstep::model {

// Predicts steps of the shapes with several hosts, over the links of
// `measured`: of trainings that compute for much longer than they reduce, for
// as long, and much shorter, and in buckets of other sizes. Runs them and
// prints both. How many step times between namespaces are off. Within a host
// memory is too quick to be hidden behind waits, which are of 50 us or more.
//
// Computing is waiting, as for a device: a rank sleeps until the moment when
// the next gradient is ready, so that ranks may outnumber the cores.
StatusOr<int> CompareSteps(const std::string& prefix,
                           const std::vector<Shape>& shapes,
                           const Cluster& measured);

}  // namespace lockstep::model

#endif  // LOCKSTEP_TESTS_BENCH_MODEL_STEP_RUNS_H_
