// Groups ranks by what they do, from the evidence of their daemons.
//
// Pure. The texts come from programs, so they are shown and never trusted.
#ifndef LOCKSTEP_SERVER_CORE_STACK_GROUPS_H_
#define LOCKSTEP_SERVER_CORE_STACK_GROUPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/evidence.h"

namespace lockstep::server {

// How certain it is what a rank does.
enum class RankActivity {
  // It has ended, or no process of it lives.
  kGone,
  // A signal or a debugger stopped it.
  kStopped,
  // In the kernel, where no signal reaches it.
  kStuckInKernel,
  // In a collective operation: it waits for other ranks.
  kInCollective,
  // Sleeps elsewhere.
  kWaits,
  // On a processor, or ready to be.
  kRuns,
  // Its stack was not read.
  kUnknown,
};

// What one rank does, from its main thread.
struct RankPosition {
  RankActivity activity = RankActivity::kUnknown;
  // "all_reduce"; empty unless kInCollective.
  std::string collective;
  // "DataLoader.__next__", and the line of the program that called it,
  // "train.py:88"; empty if unknown.
  std::string function;
  std::string place;
  // The kernel's function, for kStuckInKernel.
  std::string kernel;
  // For kUnknown, where no stack was asked for: "futex"; "-" on a processor.
  std::string system_call;
  // How it ended, for kGone: "exit code 0"; empty if unknown.
  std::string ended;
  // The stack as modules and functions, without lines; equal for ranks that do
  // the same.
  std::string key;
  // Innermost first.
  std::vector<StackFrame> frames;
};
RankPosition PositionOf(const RankEvidence& evidence);

// "waits in DataLoader.__next__ (train.py:88)", "is stopped by a signal in
// ...".
std::string Describe(const RankPosition& position);

struct StackGroup {
  // Ascending.
  std::vector<int32_t> ranks;
  RankPosition position;
  // Another group has more than half of the ranks.
  bool odd = false;
};
// The largest group first; of equal ones, that with the lowest rank.
std::vector<StackGroup> GroupRanks(const std::vector<RankEvidence>& evidence);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_STACK_GROUPS_H_
