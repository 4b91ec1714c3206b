#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {

Status MarkPeerLost(const Status& status) {
  switch (status.code()) {
    case StatusCode::kAborted:
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
      return ReasonOf(status).empty() ? WithReason(status, kReasonPeerLost)
                                      : status;
    default:
      return status;
  }
}

}  // namespace lockstep::worker::runtime
