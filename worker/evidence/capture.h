// Captures what the ranks of a host do at one moment, all of them in parallel,
// within a deadline, and without a signal to any of them.
//
// First it reads /proc of every rank, which takes milliseconds, then, if asked,
// their stacks, and beside that what NCCL and PyTorch know of their collective
// operations. Blocks; safe from any thread.
#ifndef LOCKSTEP_WORKER_EVIDENCE_CAPTURE_H_
#define LOCKSTEP_WORKER_EVIDENCE_CAPTURE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/evidence.h"
#include "worker/evidence/stacks.h"

namespace lockstep::worker::evidence {

// A rank to capture.
struct CaptureTarget {
  // Its number and what its daemon knows already: readings, notes, phase.
  RankEvidence known;
  // The process whose descendants are the rank's.
  pid_t shim = 0;
  // Its own cgroup; empty: none.
  std::string cgroup;
  std::string log;
  // Where its processes keep PyTorch's flight recorder (flight_recorder.h);
  // empty: nowhere.
  std::string flight_directory = {};
};

struct CaptureOptions {
  bool stacks = false;
  int32_t log_lines = 0;
  MonoTime deadline{};
  StackTools tools;
  // Children that run at the same time. 0: twice the cores, at most 8.
  size_t parallel = 0;
};

// Calls `done` for each target, from any thread but one at a time. All calls
// have returned when this does. What the deadline cut short says so.
void Capture(std::vector<CaptureTarget> targets, const CaptureOptions& options,
             const std::function<void(RankEvidence)>& done);

// The last `most` lines of a rank's log.
std::vector<std::string> LastLines(const std::string& log, size_t most);

}  // namespace lockstep::worker::evidence

#endif  // LOCKSTEP_WORKER_EVIDENCE_CAPTURE_H_
