// Keeps one rank's evidence within one message. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_EVIDENCE_EVIDENCE_SIZE_H_
#define LOCKSTEP_WORKER_AGENT_EVIDENCE_EVIDENCE_SIZE_H_

#include <cstddef>

#include "common/model/evidence.h"

namespace lockstep::worker::agent {

// Far below the 4 MiB of a message (common/rpc/limits.h).
inline constexpr size_t kMaxEvidenceBytes = 1 << 20;

// The memory of its texts and entries, which is about the size of its message.
size_t SizeOf(const RankEvidence& evidence);

// Cuts what says least first, and adds a note, until SizeOf is within the
// limit.
void LimitSize(RankEvidence* evidence);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EVIDENCE_EVIDENCE_SIZE_H_
