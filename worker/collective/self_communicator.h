// The communicator of one rank: every operation is already done.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SELF_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SELF_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// The work of an operation that is done at once.
class DoneWork final : public Work {
 public:
  Status Wait(MonoTime) override { return OkStatus(); }
  bool Poll() override { return true; }
};

std::unique_ptr<Communicator> MakeSelfCommunicator(const std::string& label);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SELF_COMMUNICATOR_H_
