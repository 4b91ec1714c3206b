// Asks NCCL's RAS subsystem about the communicators of a job: which ranks do
// not answer, and in which operation the others are (NCCL 2.24 and later,
// https://docs.nvidia.com/deeplearning/nccl/user-guide, "RAS").
//
// One process of each host serves it, on NCCL_RAS_ADDR or localhost:28028. The
// answer is text for people. It comes from a rank's process, so it is bounded
// and never parsed. Blocks; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_NCCL_RAS_H_
#define LOCKSTEP_WORKER_EVIDENCE_NCCL_RAS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/evidence.h"

namespace lockstep::worker::evidence {

// The address on which a process with this environment (/proc/PID/environ)
// listens for questions, of `sockets`, which are its own: "127.0.0.1:28028".
// nullopt: it does not. Pure.
std::optional<std::string> RasAddressOf(
    std::string_view environment, const std::vector<SocketEvidence>& sockets);

// The lines of the answer. `address` is as RasAddressOf returned it. NCCL waits
// for ranks that do not answer itself until shortly before `deadline`.
StatusOr<std::vector<std::string>> AskNcclRas(const std::string& address,
                                              MonoTime deadline);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_NCCL_RAS_H_
