// The check of GPUs that no rank holds: request and result. Pure values.
#ifndef LOCKSTEP_COMMON_MODEL_GPU_CHECK_H_
#define LOCKSTEP_COMMON_MODEL_GPU_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

inline constexpr size_t kMaxCheckParts = 16;
inline constexpr size_t kMaxCheckText = 256;
// The longest time that a check of GPUs may be given.
inline constexpr Duration kMaxGpuCheckTime = std::chrono::minutes(10);

// One part of a check.
struct GpuCheckPart {
  // "memory", "matmul", "all_reduce".
  std::string name;
  // What it measured: 1875.3 "GB/s". 0 and empty if nothing. No part fails
  // because it is slow.
  double value = 0;
  std::string unit = {};
  // Why it failed. Empty: it passed, or was skipped.
  std::string failure = {};
  // Why it was skipped. Empty: it ran.
  std::string skipped = {};

  bool operator==(const GpuCheckPart&) const = default;
};

struct GpuCheck {
  int32_t index = 0;
  std::string uuid = {};
  // When it ended, and how long it took.
  WallTime time{};
  Duration took{};
  // Why the GPU failed. Empty: it passed.
  std::string failure = {};
  // In the order in which they ran.
  std::vector<GpuCheckPart> parts = {};

  bool operator==(const GpuCheck&) const = default;
};

// "memory 1875 GB/s, matmul 31 TFLOP/s, all_reduce skipped: no second GPU".
std::string Describe(const std::vector<GpuCheckPart>& parts);

// To a daemon.
struct GpuCheckOrder {
  // Unique within its stream.
  uint64_t id = 0;
  std::vector<int32_t> gpus;
  Duration within{};
  // A GPU that no rank holds either, for an all-reduce; it is not checked.
  std::optional<int32_t> partner = {};

  bool operator==(const GpuCheckOrder&) const = default;
};

struct GpuCheckAnswer {
  uint64_t id = 0;
  // Not OK: nothing is known about the GPUs.
  Status status = OkStatus();
  std::vector<GpuCheck> checks = {};
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_GPU_CHECK_H_
