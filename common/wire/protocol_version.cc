#include "common/wire/protocol_version.h"

namespace lockstep {

Status CheckProtocol(const v1::Register& message) {
  const int32_t theirs = message.protocol() == 0 ? 1 : message.protocol();
  if (theirs == kWorkerProtocol || theirs == kWorkerProtocol - 1) {
    return OkStatus();
  }
  return WithReason(
      FailedPrecondition("this worker daemon speaks protocol {} and the "
                         "coordinator {} and {}: upgrade the {}",
                         theirs, kWorkerProtocol - 1, kWorkerProtocol,
                         theirs > kWorkerProtocol ? "coordinator" : "worker"),
      kProtocolVersion);
}

}  // namespace lockstep
