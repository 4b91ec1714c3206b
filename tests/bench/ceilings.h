// What this machine allows, measured without lockstep or a peer, for a row's
// limit. Of memory: memory_ceiling.h.
#ifndef LOCKSTEP_TESTS_BENCH_CEILINGS_H_
#define LOCKSTEP_TESTS_BENCH_CEILINGS_H_

#include <cstddef>

namespace lockstep {

// Seconds in which two threads send each other `bytes` over one connection of
// the loopback by plain send and recv, piece by piece in turn; the best of some
// sizes of a piece, waiting and polling, some turns each. Nothing is added up.
// 0 where it cannot be measured.
double LoopbackExchangeSeconds(size_t bytes);

// Seconds in which two threads on two cores write `bytes` each where the other
// sees it, raise a flag, wait for the other's and add up what it wrote: the
// median of batches. REQUIRES: bytes <= 64 KiB.
double CacheExchangeSeconds(size_t bytes);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_CEILINGS_H_
