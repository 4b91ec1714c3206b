// Progress of the preparation of gangs, and the durations of its parts, for the
// coordinator's reports.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_TIMES_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_TIMES_H_

#include <cstddef>
#include <map>
#include <optional>

#include "common/base/clock.h"
#include "common/model/node.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/core/local_gang.h"

namespace lockstep::worker::agent {

class PreparationTimes {
 public:
  // Sets the newest state of the gang's preparation.
  void Set(const GangKey& key, TaskPreparation preparation);
  // Absent: unknown, or an earlier daemon prepared the gang.
  std::optional<TaskPreparation> Get(const GangKey& key) const;
  // The ranks of the gang are starting. The first call counts.
  void NoteLaunch(const GangKey& key, MonoTime now);
  // `rank` runs. A task has started once all of its ranks run.
  void NoteStarted(const GangKey& key, const LocalGang& gang, int32_t rank,
                   MonoTime now);
  // Puts the preparation of each task into `status`.
  void AddTo(const GangKey& key, const LocalGang& gang, MonoTime now,
             GangStatus* status) const;
  void Forget(const GangKey& key) { gangs_.erase(key); }

 private:
  struct Times {
    std::optional<TaskPreparation> preparation;
    std::optional<MonoTime> launched;
    // Time from launch until all ranks of a task ran, by the task's index.
    std::map<size_t, Duration> exec;
  };

  std::map<GangKey, Times> gangs_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_TIMES_H_
