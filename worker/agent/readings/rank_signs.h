// Watches one program rank for signs of progress: its page, its log, its
// activity, and news of its files. progress/progress_watch.h has the rules.
//
// Belongs to the event loop's thread. Reads the newest part of the log.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_RANK_SIGNS_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_RANK_SIGNS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "worker/agent/progress/activity.h"
#include "worker/agent/progress/progress_watch.h"
#include "worker/agent/progress/step_lines.h"

namespace lockstep::worker::agent {

struct SignOptions {
  // As in JobSpec.
  std::optional<Duration> stall_after;
  std::string progress_pattern;
  std::string log_path;
  // SignLimits::grace.
  Duration first_sign{};
};

class RankSigns {
 public:
  // Log lines before now are not looked at.
  RankSigns(const SignOptions& options, MonoTime now);

  // Begins a round of looks, about once a second.
  void Look(MonoTime now) { watch_.Look(now); }
  // The newest reading of the rank's page, which last changed at `changed`; an
  // empty phase: it has not joined.
  void TakePage(const RankProgress& page, MonoTime changed, MonoTime now);
  void TakeActivity(const ActivitySample& sample, MonoTime now);
  void TakeFiles(MonoTime now) { watch_.TakeSign(SignSource::kFiles, now); }
  // Reads what the log has grown by; of much output the newest part.
  void ReadLog(MonoTime now);

  ProgressSigns Signs(MonoTime now) const;

 private:
  SignLimits Limits() const;

  const SignOptions options_;
  ProgressWatch watch_;
  StepScanner scanner_;
  ActivityMeter activity_;
  RankProgress page_;
  MonoTime read_{};
  uint64_t log_offset_ = 0;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_RANK_SIGNS_H_
