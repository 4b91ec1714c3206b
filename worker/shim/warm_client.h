// The worker daemon's side of a warm start (worker/shim/warm.h).
#ifndef LOCKSTEP_WORKER_SHIM_WARM_CLIENT_H_
#define LOCKSTEP_WORKER_SHIM_WARM_CLIENT_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/os/process.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

// A shim with an interpreter that waits for its rank. Closing `control` ends
// both; the caller must call WaitExit for the process eventually.
struct WarmShim {
  Process shim;
  Fd control;
};

// Starts `shim_program` (an absolute path) with the interpreter of `spec` and
// returns immediately. Of `spec` the command, the environment, the user, the
// limits, the cgroup and the secret count.
StatusOr<WarmShim> StartWarmShim(const std::string& shim_program,
                                 const task::ShimSpec& spec);

// Returns what the interpreter said when it was ready; nullopt: it has not said
// it yet. Unavailable: it has ended.
StatusOr<std::optional<std::string>> TakeWords(const WarmShim& warm);

// Makes it the shim of a rank, as StartShim does. Returns an error if it has
// ended: then nothing was started.
Status HandOver(const WarmShim& warm, const task::ShimSpec& rank,
                const std::string& stderr_path, const std::vector<int>& held);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_WARM_CLIENT_H_
