// Which GPUs of a node are being checked, and what checks found. Passive data
// of a Member; member_checks.h has the rules.
#ifndef LOCKSTEP_SERVER_CORE_GPU_CHECKING_H_
#define LOCKSTEP_SERVER_CORE_GPU_CHECKING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/clock.h"
#include "common/model/gpu_check.h"
#include "server/core/gpu_verdict.h"

namespace lockstep::server {

// A GPU's check that is under way.
struct OpenCheck {
  // Of its order.
  uint64_t id = 0;
  WallTime since{};
  // An operator asked for it. Otherwise its time of being withheld is over.
  bool asked = false;
  // It only helps another GPU, and is not judged.
  bool partner = false;
  // Gpu::fault when it began.
  std::string fault = {};
  // What its readings said meanwhile.
  std::optional<GpuVerdict> meanwhile = {};
};

// All by index. Soft: a restarted coordinator begins checks anew.
struct GpuChecking {
  std::map<int32_t, OpenCheck> open;
  // Their time of being withheld is over, and they wait for a check.
  std::set<int32_t> due;
  // Before it no check is begun: the daemon has just refused one.
  MonoTime not_before;
  // The newest ones.
  std::map<int32_t, GpuCheck> last;
  uint64_t passed = 0;
  uint64_t failed = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_GPU_CHECKING_H_
