// Waits until the nodes of a job have captured evidence of its ranks: at a
// stall, and before the ranks are stopped. Pure: callers pass `now`.
//
// The nodes are asked by Assignment::evidence and answer by
// GangStatus::evidence_done. A node that is silent, or of an older version,
// delays a restart by kLongest and no longer.
#ifndef LOCKSTEP_SERVER_CORE_CAPTURE_WAIT_H_
#define LOCKSTEP_SERVER_CORE_CAPTURE_WAIT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "server/core/job_view.h"

namespace lockstep::server {

class CaptureWait {
 public:
  static constexpr Duration kLongest = std::chrono::seconds(5);

  // Discards what is asked of an older generation.
  void Reset(Generation generation);
  // Returns true if the nodes must be asked now: nothing was asked for `reason`
  // since the last Drop. What the nodes answered to an earlier coordinator is
  // no answer.
  bool Ask(Reason reason, const Job& job, const JobView& view, MonoTime now);
  // The reason is gone: a later Ask asks again.
  void Drop() { asked_.reset(); }
  // Whether each node on which ranks of the job run has answered, or kLongest
  // has passed. False before Ask.
  bool IsOver(const Job& job, const JobView& view, MonoTime now) const;
  // Returns true once after each Ask. REQUIRES: IsOver.
  bool TakeEnd() { return !std::exchange(taken_, true); }
  // Assignment::evidence.
  uint32_t number() const { return number_; }

 private:
  Generation generation_ = 0;
  uint32_t number_ = 0;
  Reason reason_ = Reason::kNone;
  std::optional<MonoTime> asked_;
  bool taken_ = false;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_CAPTURE_WAIT_H_
