#include "common/model/gpu_check.h"

#include <fmt/format.h>

namespace lockstep {

std::string Describe(const std::vector<GpuCheckPart>& parts) {
  std::string text;
  for (const GpuCheckPart& part : parts) {
    if (!text.empty()) text += ", ";
    text += part.name;
    if (!part.skipped.empty()) {
      text += " skipped: " + part.skipped;
    } else if (!part.failure.empty()) {
      text += " failed: " + part.failure;
    } else if (!part.unit.empty()) {
      text += fmt::format(" {:.4g} {}", part.value, part.unit);
    } else {
      text += " passed";
    }
  }
  return text;
}

}  // namespace lockstep
