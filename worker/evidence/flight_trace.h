// Reads the trace of PyTorch's flight recorder: the collective operations that
// a process has begun, as torch::jit's pickler wrote them
// (torch/csrc/distributed/c10d/FlightRecorder.hpp, versions 2.x).
//
// A rank's user may write anything into the file, so only plain values are read
// (numbers, texts, lists, dictionaries), with bounds, and nothing is executed.
// Pure; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_FLIGHT_TRACE_H_
#define LOCKSTEP_WORKER_EVIDENCE_FLIGHT_TRACE_H_

#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/evidence.h"

namespace lockstep::worker::evidence {

// Returns the newest collective operations of each process group, at most
// kMaxFlightRecords, oldest first. Operations between two ranks (send, receive)
// are left out. DataLoss says what is wrong with `pickle`.
StatusOr<std::vector<FlightRecord>> ParseFlightTrace(std::string_view pickle);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_FLIGHT_TRACE_H_
