// A warm start: a shim and its Python interpreter start before the daemon knows
// which rank they will be (worker/agent/warm/warm_ranks.h).
//
//   lockstep-shim --warm FD
//
// FD is a memfd with a ShimSpec for the interpreter: command, environment,
// user, cgroup; its paths are unused. FD + 1 is a SOCK_SEQPACKET socket of the
// daemon:
//
//   shim -> daemon   one packet when the interpreter is ready: what it says of
//                    itself, JSON (worker/warm/warm_start.py)
//   daemon -> shim   one packet with descriptors: a memfd with the rank's
//                    ShimSpec, the file for the shim's errors, and what the
//                    shim of the rank keeps open (main.cc)
//
// From then on the shim is the one of that rank (shim.h), and the interpreter
// is its process. The shim tells it so through a socket, its descriptor 3. If
// the daemon ends before, the shim ends, and its interpreter with it. If the
// interpreter ends before, the shim ends, unless a rank is on its way: that one
// starts cold.
#ifndef LOCKSTEP_WORKER_SHIM_WARM_H_
#define LOCKSTEP_WORKER_SHIM_WARM_H_

#include "worker/shim/io.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::shim {

// Returns the process's exit code.
int RunWarm(const task::ShimSpec& spec, Fd daemon);

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_WARM_H_
