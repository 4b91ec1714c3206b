// The interpreters that wait on this node for ranks of jobs with warm starts
// (JobSpec::warm_starts, and spare nodes): for each rank of a gang here one.
//
// An interpreter is started some seconds after the gang's last rank, so that it
// takes no time from it, or as soon as a spare node has prepared. It serves any
// rank here of the same job that MayBecome allows, also of a later generation.
// One that ends by itself is started again after growing waits. Where none is
// ready, a rank starts cold.
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

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/host/rank_cgroups.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/shim/warm_client.h"
#include "worker/task/shim_spec.h"

namespace lockstep::worker::agent {

class WarmRanks {
 public:
  struct Parts {
    EventLoop* loop = nullptr;
    CoreRunner* core = nullptr;
    RankCgroups* cgroups = nullptr;
    std::string shim_program;
    // Returns the spec with which the rank would start now, in an existing
    // directory and in a new cgroup, and the group's id. Absent: not known yet.
    std::function<std::optional<task::ShimSpec>(const RankRef& ref)> sample;
  };

  // All are borrowed.
  explicit WarmRanks(Parts parts) : parts_(std::move(parts)) {}
  ~WarmRanks();
  WarmRanks(const WarmRanks&) = delete;
  WarmRanks& operator=(const WarmRanks&) = delete;

  // Takes an interpreter that is ready to become the rank with this spec, and
  // gives the spec what the interpreter has already: socket, cgroup, mark.
  // Nullopt: there is none.
  std::optional<shim::WarmShim> Take(const std::string& job_uid,
                                     task::ShimSpec* spec);
  // A rank of the job starts here, warm or cold.
  void NoteStart(const std::string& job_uid);
  // Starts what is wanted and ends what is not. Call it a few times a second.
  void Tick();

  int64_t ready() const;
  // Ranks that an interpreter became, and interpreters that ended before.
  uint64_t starts() const { return starts_; }
  uint64_t failures() const { return failures_; }

 private:
  struct Waiting {
    std::string job_uid;
    task::ShimSpec sample;
    shim::WarmShim warm;
    bool ready = false;
    MonoTime since;
  };
  // Of a job here.
  struct Job {
    // Ranks that may start here, of its newest gang.
    std::vector<RankRef> wanted;
    // When a gang of it was last here, or a rank started.
    MonoTime seen;
    MonoTime last_start;
    // Interpreters that ended in a row before they were ready.
    int failures = 0;
    MonoTime not_before;
  };

  void CollectWanted(MonoTime now);
  void StartMissing(const std::string& uid, Job* job, MonoTime now);
  void Start(const std::string& uid, Job* job, const RankRef& like,
             MonoTime now);
  // Reads what the interpreters say; removes those that have ended.
  void Look(MonoTime now);
  void Fail(const std::string& uid, MonoTime now);
  void Remove(std::list<Waiting>::iterator waiting);
  void Tell();

  const Parts parts_;
  std::map<std::string, Job> jobs_;
  std::list<Waiting> waiting_;
  uint64_t starts_ = 0;
  uint64_t failures_ = 0;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_WARM_WARM_RANKS_H_
