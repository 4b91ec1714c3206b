// Runs one of A1 to A8: ours and its peers by turns, in fresh processes.
#ifndef LOCKSTEP_TESTS_BENCH_ENGINE_RUN_H_
#define LOCKSTEP_TESTS_BENCH_ENGINE_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/busy_rounds.h"
#include "tests/bench/engine_rows.h"
#include "tests/bench/report.h"

namespace lockstep {

struct EngineOptions {
  int rounds = 8;  // the first one is dropped
  OnBusy on_busy = OnBusy::kRepeat;
  uint64_t least_bytes = 0;  // other rows are left out
  uint64_t most_bytes = UINT64_MAX;
  bool likely_only = false;  // of the peers' settings
  std::string backend;       // instead of the row's
  bool verbose = false;
};

// Prints what it does, and the results. Errors: NotFound for a peer that is
// not there, PermissionDenied, Unavailable where the machine stays busy; else
// ours failed.
StatusOr<std::vector<BenchResult>> RunEngineBench(const EngineBench& bench,
                                                  const EngineOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_ENGINE_RUN_H_
