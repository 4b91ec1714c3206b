// Notifies the user of a communicator that it broke.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_BROKEN_H_
#define LOCKSTEP_WORKER_COLLECTIVE_BROKEN_H_

#include <functional>

#include "common/base/status.h"

namespace lockstep::worker::collective {

// Called with the first error, whatever caused it (Abort as well), and perhaps
// with what follows from it. By any thread, with no lock held, not after the
// communicator's end. Must be quick; may call Abort of any communicator, and
// nothing else of the one that calls it.
using BrokenFunction = std::function<void(const Status&)>;

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_BROKEN_H_
