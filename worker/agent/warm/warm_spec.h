// How the interpreter of a warm start is started, and which rank it may become.
// Pure.
#ifndef LOCKSTEP_WORKER_AGENT_WARM_WARM_SPEC_H_
#define LOCKSTEP_WORKER_AGENT_WARM_WARM_SPEC_H_

#include "common/model/resources.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {

// How a rank would start now.
struct WarmSample {
  task::ShimSpec spec;
  // The limits of its cgroup.
  Resources share;
};

// Turns the spec of a rank into that of an interpreter that has imported what
// the rank's program imports (worker/warm/warm_start.py). Returns false, and
// leaves it, if the rank does not run a Python script or module, or runs in a
// container.
bool MakeWarm(task::ShimSpec* spec);

// Whether an interpreter that was started for `sample` may become `rank`: its
// limits are the same, and all that the interpreter and the imported modules
// may have looked at. Variables that say which rank it is may differ, as
// TF_CONFIG: a program reads them after its imports.
bool MayBecome(const WarmSample& sample, const WarmSample& rank);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WARM_WARM_SPEC_H_
