// Signals that a daemon takes from a descriptor.
#ifndef LOCKSTEP_COMMON_OS_SIGNALS_H_
#define LOCKSTEP_COMMON_OS_SIGNALS_H_

#include <initializer_list>

#include "common/base/fd.h"

namespace lockstep {

// Blocks `signals` in this thread and in those that it starts, ignores SIGPIPE,
// and returns a non-blocking signalfd of `signals`. Call it before any thread
// starts.
Fd BlockSignals(std::initializer_list<int> signals);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_SIGNALS_H_
