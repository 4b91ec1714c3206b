// Says which rank the others wait for, from evidence about all of them, or why
// that cannot be known.
//
// It names a rank as the cause only if what was read leaves no other: a wrong
// name costs more than none. Pure.
#ifndef LOCKSTEP_SERVER_CORE_HANG_VERDICT_H_
#define LOCKSTEP_SERVER_CORE_HANG_VERDICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/evidence.h"
#include "server/core/stack_groups.h"

namespace lockstep::server {

struct HangVerdict {
  // "rank 17 waits in DataLoader.__next__ (train.py:88); 63 ranks wait for it
  // in all_reduce".
  std::string sentence;
  // Empty: unknown.
  std::vector<int32_t> cause = {};
  // How the ranks that are not like the others differ, beside their stacks.
  std::vector<std::string> differences = {};
  // What would help.
  std::vector<std::string> hints = {};
};

// `groups` are those of `evidence`. `missing` ranks run, as far as is known,
// but have no evidence.
HangVerdict JudgeHang(const std::vector<RankEvidence>& evidence,
                      const std::vector<StackGroup>& groups,
                      const std::vector<int32_t>& missing);

// Sentences about the ranks whose readings are far from the median of all:
// swap, pressure, clocks and links of GPUs, Xids.
std::vector<std::string> DifferencesOf(
    const std::vector<RankEvidence>& evidence);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_HANG_VERDICT_H_
