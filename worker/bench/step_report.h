// What a step took, as text and as JSON. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_STEP_REPORT_H_
#define LOCKSTEP_WORKER_BENCH_STEP_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "worker/bench/step_results.h"

namespace lockstep {

// Lines with "#" first.
std::string StepText(const StepResults& results);

// {"collective": "step", ...}, seconds and bytes.
nlohmann::json StepJson(const StepResults& results);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_STEP_REPORT_H_
