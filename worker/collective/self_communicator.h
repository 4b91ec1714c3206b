// The communicator of one rank: every operation is already done.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SELF_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SELF_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep {

std::unique_ptr<Communicator> MakeSelfCommunicator(const std::string& label);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SELF_COMMUNICATOR_H_
