// Evidence about ranks, as convert.h says: what a daemon answers, and what
// clients get.
#ifndef LOCKSTEP_COMMON_WIRE_EVIDENCE_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_EVIDENCE_WIRE_H_

#include "common/model/evidence.h"
#include "common/wire/convert.h"
#include "lockstep/v1/evidence.pb.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

// The longest time that a query may give.
inline constexpr Duration kMaxEvidenceTime = std::chrono::seconds(30);

LOCKSTEP_CONVERTS(StackFrame, "frame")
LOCKSTEP_CONVERTS(ThreadEvidence, "thread")
LOCKSTEP_CONVERTS(ProcessEvidence, "process")
LOCKSTEP_CONVERTS(SocketEvidence, "socket")
// Texts come from programs: they may hold anything but NUL.
LOCKSTEP_CONVERTS(RankEvidence, "evidence")
LOCKSTEP_CONVERTS_AS(EvidenceQuery, v1::EvidenceRequest, "evidence_request")
LOCKSTEP_CONVERTS_AS(EvidenceAnswer, v1::EvidenceReply, "evidence_reply")

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_EVIDENCE_WIRE_H_
