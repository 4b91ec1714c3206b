// Ranks of this host: processes that are forked before there is any thread.
#ifndef LOCKSTEP_WORKER_BENCH_LAUNCH_H_
#define LOCKSTEP_WORKER_BENCH_LAUNCH_H_

#include <functional>

namespace lockstep {

// Runs fn(rank) in `ranks` processes of their own, which die with this one,
// and waits for all. When one ends with anything but 0, the others get `grace`
// seconds to notice it and are killed then. Returns the first rank's code that
// is not 0 (128 + signal where a signal ended it), else 0.
int RunRanks(int ranks, double grace, const std::function<int(int rank)>& fn);

// Keeps the calling thread on the index-th of the cores that it may use,
// counted round.
void PinToCore(int index);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_BENCH_LAUNCH_H_
