#include "worker/collective/reduce_loops.h"
#include "worker/collective/reduce_sets.h"

namespace lockstep::worker::collective {

constinit const ReduceTable kPlainReductions = LOCKSTEP_REDUCE_TABLE;

}  // namespace lockstep::worker::collective
