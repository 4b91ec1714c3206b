// Holds predicted steps against real ones of the reducer that jobs use: of
// collective_model_check (against_runs_test.cc).
#ifndef LOCKSTEP_WORKER_COLLECTIVE_MODEL_STEP_RUNS_TEST_UTIL_H_
#define LOCKSTEP_WORKER_COLLECTIVE_MODEL_STEP_RUNS_TEST_UTIL_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/model/model.h"
#include "worker/collective/model/rank_runs_test_util.h"

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

#endif  // LOCKSTEP_WORKER_COLLECTIVE_MODEL_STEP_RUNS_TEST_UTIL_H_
