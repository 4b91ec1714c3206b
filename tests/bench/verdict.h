// Whether results are what they must be.
#ifndef LOCKSTEP_TESTS_BENCH_VERDICT_H_
#define LOCKSTEP_TESTS_BENCH_VERDICT_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/report.h"

namespace lockstep {

// Of a benchmark's exit: it was not measured, for want of a peer, of rights or
// of a quiet machine.
inline constexpr int kExitNotMeasured = 77;

struct Gate {
  double factor = 1;       // of what must be
  bool on_median = false;  // else on the lower end of the interval
};

struct Verdict {
  // A line for each result that must be something.
  std::vector<std::string> lines;
  // DataLoss: something computed wrong data. FailedPrecondition: something is
  // missed. Unavailable: what is missed was read on a machine that others used,
  // or that was much quicker in one of the peer's rounds than in another, which
  // says nothing.
  Status status;
};

// Pure.
Verdict JudgeResults(const std::vector<BenchResult>& results, const Gate& gate);

// 0 for OK, 77 for what was not measured, else 1.
int ExitCodeOf(const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_VERDICT_H_
