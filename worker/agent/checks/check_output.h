// What lockstep-gpu-check prints, line by line, with tabs between the words:
//
//   begin   NAME               a part begins
//   passed  NAME VALUE UNIT    what it measured
//   failed  NAME TEXT
//   skipped NAME TEXT
//   cannot  TEXT               this host or this build cannot check the GPU
//   end                        the last line
//
// A broken GPU may break the program, so nothing is trusted. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_CHECKS_CHECK_OUTPUT_H_
#define LOCKSTEP_WORKER_AGENT_CHECKS_CHECK_OUTPUT_H_

#include <string>
#include <string_view>
#include <vector>

#include "common/model/gpu_check.h"

namespace lockstep::worker::agent {

struct GpuCheckOutput {
  // In the order in which they ended; at most kMaxCheckParts.
  std::vector<GpuCheckPart> parts;
  // The part that began and did not end. Empty: none.
  std::string open;
  // Empty: it could.
  std::string cannot;
  // It has printed `end`.
  bool whole = false;
  // What is wrong with the text; empty: nothing.
  std::string broken;
};

GpuCheckOutput ParseGpuCheck(std::string_view text);

// How the program ended.
struct GpuCheckEnd {
  // Killed, because its time was over.
  bool hung = false;
  // Otherwise "exited with code 3"; empty: with 0.
  std::string exit;
};

// Why the GPU failed; empty if it passed. REQUIRES: `output` has no `cannot`.
std::string FailureOf(const GpuCheckOutput& output, const GpuCheckEnd& end,
                      Duration took);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CHECKS_CHECK_OUTPUT_H_
