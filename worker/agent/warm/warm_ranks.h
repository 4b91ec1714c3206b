// The interpreters that wait on this node for ranks of jobs with warm starts
// (JobSpec::warm_starts, and spare nodes): one for each rank of a gang here.
//
// An interpreter starts some seconds after the gang's last rank, which imports
// by itself then, or as soon as a spare node has prepared. It becomes any rank
// of the job that MayBecome allows, also of a later generation, while a gang of
// the job is here. One that ends by itself is followed by another after growing
// waits. Where none is ready, a rank starts cold.
//
// Belongs to the event loop's thread. The interpreters end with this object.
#ifndef LOCKSTEP_WORKER_AGENT_WARM_WARM_RANKS_H_
#define LOCKSTEP_WORKER_AGENT_WARM_WARM_RANKS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/rank_cgroups.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/warm/warm_spec.h"
#include "worker/shim/warm_client.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {

class WarmRanks {
 public:
  struct Parts {
    EventLoop* loop = nullptr;
    CoreRunner* core = nullptr;
    FileSystem* files = nullptr;
    RankCgroups* cgroups = nullptr;
    std::string shim_program;
    // A directory of the daemon, where the cgroups of interpreters are noted.
    std::string dir;
    // Returns how the rank would start now, in an existing directory and
    // without a cgroup. FailedPrecondition: it cannot start warm.
    std::function<StatusOr<WarmSample>(const RankRef& ref)> sample;
  };

  // All are borrowed.
  explicit WarmRanks(Parts parts) : parts_(std::move(parts)) {}
  ~WarmRanks();
  WarmRanks(const WarmRanks&) = delete;
  WarmRanks& operator=(const WarmRanks&) = delete;

  // Removes the cgroups of interpreters of an earlier daemon, which have ended
  // with it. Call it before the loop runs.
  void Clear();
  // Takes an interpreter that is ready to become the rank, and gives the rank's
  // spec what the interpreter has already: socket, cgroup, mark. Nullopt: there
  // is none.
  std::optional<shim::WarmShim> Take(const std::string& job_uid,
                                     WarmSample* rank);
  // A rank of the job starts here, warm or cold.
  void NoteStart(const std::string& job_uid);
  // Starts what is wanted and ends what is not. Call it a few times a second.
  void Tick();

  int64_t ready() const;
  // Interpreters that were taken for a rank, and those that ended before.
  uint64_t starts() const { return starts_; }
  uint64_t failures() const { return failures_; }

 private:
  struct Waiting {
    std::string job_uid;
    WarmSample sample;
    shim::WarmShim warm;
    bool ready = false;
    MonoTime since;
  };
  // Of a job here.
  struct Job {
    // Ranks that may start here, of its newest gang.
    std::vector<RankRef> wanted;
    // Those for which interpreters were chosen last, and how many of them can
    // start warm. The others are asked again at `ask_again`.
    std::vector<RankRef> chosen_for;
    size_t chosen = 0;
    std::optional<MonoTime> ask_again;
    // Its ranks have started here, and it wants no warm starts.
    bool is_cold = false;
    // When a gang of it was last here, or a rank started.
    MonoTime seen;
    MonoTime last_start;
    // Interpreters that ended since the last one was taken.
    int failures = 0;
    MonoTime not_before;
  };

  void CollectWanted(MonoTime now);
  // Removes what no wanted rank can use, and starts what is missing.
  void Choose(const std::string& uid, Job* job, MonoTime now);
  // FailedPrecondition: the rank cannot start warm.
  StatusOr<WarmSample> SampleOf(const RankRef& ref) const;
  Status Start(const std::string& uid, WarmSample sample, MonoTime now);
  // Reads what the interpreters say; removes those that have ended.
  void Look(MonoTime now);
  void Fail(const std::string& uid, MonoTime now);
  size_t CountOf(const std::string& uid) const;
  // Ends those for which `matches` returns true.
  void RemoveIf(const std::function<bool(Waiting&)>& matches);
  std::string NoteOf(const std::string& id) const;

  const Parts parts_;
  std::map<std::string, Job> jobs_;
  std::list<Waiting> waiting_;
  uint64_t starts_ = 0;
  uint64_t failures_ = 0;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WARM_WARM_RANKS_H_
