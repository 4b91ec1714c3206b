// The values that ranks put into their buffers, and the check of the results.
//
// Every rank can compute every other rank's values: element i of rank r comes
// from a sequence with a prime period, so a part in the wrong place is
// detected. The values are exact in every type, and so are sums of up to 32 of
// them, except for float32 and float64, where noise makes them round. Pure.
#ifndef LOCKSTEP_WORKER_BENCH_VALUES_H_
#define LOCKSTEP_WORKER_BENCH_VALUES_H_

#include <cstddef>
#include <cstdint>

#include "worker/collective/communicator.h"

namespace lockstep::worker::bench {

// Rank `rank`'s value of element `i` in round `round`, as float64.
double InputValue(collective::DataType type, int rank, size_t i, int round);

// Elements [first, first + count) of rank `rank` to `data`, that of `first`.
void FillInput(collective::DataType type, int rank, size_t first, size_t count,
               int round, void* data);

// How many of `count` elements of `data`, that begins with element `first`,
// differ from the reduction of all ranks' input by more than rounding (of
// `ranks` additions in the type itself).
uint64_t CountWrong(collective::DataType type, collective::ReduceOp op,
                    int ranks, size_t first, size_t count, int round,
                    const void* data);
// The same, of one rank's input, bit for bit.
uint64_t CountDifferent(collective::DataType type, int rank, size_t first,
                        size_t count, int round, const void* data);

}  // namespace lockstep::worker::bench

#endif  // LOCKSTEP_WORKER_BENCH_VALUES_H_
