#include "common/model/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "common/base/ascii.h"

namespace lockstep {
namespace {}  // namespace

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0 || value >= 100)
    return fmt::format("{:.0f} {}", value, kUnits[unit]);
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string DescribeCpus(double cpus) {
  return fmt::format("{:g} cpu{}", cpus, cpus == 1 ? "" : "s");
}

std::string Describe(const Resources& r) {
  std::string text;
  const auto add = [&text](const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  if (r.cpus > 0) add(DescribeCpus(r.cpus));
  if (r.memory_bytes > 0) add(FormatBytes(r.memory_bytes));
  if (r.gpus > 0) {
    const char* const any = r.gpus == 1 ? "GPU" : "GPUs";
    add(fmt::format("{} {}", r.gpus, r.gpu_type.empty() ? any : r.gpu_type));
  }
  return text.empty() ? "nothing" : text;
}

bool GpuModelMatches(const std::string& wanted, const std::string& model) {
  if (wanted.empty()) return true;
  const std::string a = AsciiLower(wanted);
  const std::string b = AsciiLower(model);
  return a == b || (!b.empty() && b.find(a) != std::string::npos);
}

}  // namespace lockstep
