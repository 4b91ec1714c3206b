// Notices that the models and logs in a job's output directory change
// (work/output_files.h). Looks every few seconds, on a thread of its own,
// because a shared file system may not answer.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_OUTPUT_WATCH_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_OUTPUT_WATCH_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/loop/work_thread.h"

namespace lockstep::worker::agent {

class OutputWatch {
 public:
  // From the end of one look to the next.
  static constexpr Duration kPeriod = std::chrono::seconds(5);

  // `loop` is borrowed. `changed` is called on its thread.
  OutputWatch(EventLoop* loop, std::function<void(const RankRef&)> changed)
      : loop_(loop), changed_(std::move(changed)) {}

  // Looks at the rank's output directory if it is time to. The first look is
  // no change.
  void Look(const RankRef& ref, const std::string& directory);
  void Forget(const RankRef& ref) { known_.erase(ref); }

 private:
  struct Known {
    MonoTime next;
    bool looks = false;
    std::optional<std::vector<OutputFile>> files;
  };
  void Take(const RankRef& ref, std::vector<OutputFile> files);

  EventLoop* const loop_;
  const std::function<void(const RankRef&)> changed_;
  std::map<RankRef, Known> known_;
  Lifetime lifetime_;
  WorkThread thread_;  // Last: its jobs use the others.
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_OUTPUT_WATCH_H_
