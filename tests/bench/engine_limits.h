// What a row could be at most on this machine.
#ifndef LOCKSTEP_TESTS_BENCH_ENGINE_LIMITS_H_
#define LOCKSTEP_TESTS_BENCH_ENGINE_LIMITS_H_

#include <cstdint>

#include "tests/bench/engine_rows.h"
#include "tests/bench/report.h"

namespace lockstep {

// Bytes of a buffer that the caches do not hold.
inline constexpr uint64_t kUncached = 8 << 20;

// Measures it, in a second or two, and puts it into `result`. Leaves it out
// where nothing sensible is known: in one memory below kUncached, but for two
// ranks and 64 KiB or less.
void MeasureLimit(const EngineBench& bench, BenchResult* result);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_ENGINE_LIMITS_H_
