// What the machine's memory allows, for a row's limit.
#ifndef LOCKSTEP_TESTS_BENCH_MEMORY_CEILING_H_
#define LOCKSTEP_TESTS_BENCH_MEMORY_CEILING_H_

#include <cstddef>

namespace lockstep {

// Bytes a second that `threads` threads together move with q[i] += p[i] on
// floats: two read and one written for each operand's. Each adds arrays of
// `bytes`; the best of some turns.
double AddBytesPerSecond(int threads, size_t bytes);

// Seconds that an all-reduce in place in one memory takes at that rate: every
// rank's buffer is read once and written once.
double InPlaceLimit(int ranks, size_t bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_MEMORY_CEILING_H_
