// What lockstep-gpu-check printed, which a broken GPU may have broken.
#include <cmath>

#include "tests/fuzz/fuzz.h"
#include "worker/agent/checks/check_output.h"

LOCKSTEP_FUZZ_TARGET(gpu_check)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::worker::agent;
  const GpuCheckOutput output = ParseGpuCheck(fuzz::View(data, size));
  fuzz::Require(output.parts.size() <= kMaxCheckParts, "parts are bounded");
  bool failed = !output.broken.empty() || !output.whole;
  for (const GpuCheckPart& part : output.parts) {
    fuzz::Require(part.failure.size() <= kMaxCheckText &&
                      part.skipped.size() <= kMaxCheckText,
                  "texts are bounded");
    fuzz::Require(std::isfinite(part.value) && part.value >= 0,
                  "a figure is one");
    failed = failed || !part.failure.empty();
  }
  if (output.cannot.empty()) {
    fuzz::Require(FailureOf(output, {}, Duration{}).empty() != failed,
                  "only a whole check passes");
  }
  return 0;
}
