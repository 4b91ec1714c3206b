// Builds the report of a rank's end: how, why, and its exit message.
//
// Belongs to the event loop's thread. Reads the rank's log and files, and
// /proc.
#ifndef LOCKSTEP_WORKER_AGENT_EXITS_RANK_EXITS_H_
#define LOCKSTEP_WORKER_AGENT_EXITS_RANK_EXITS_H_

#include <functional>
#include <string>

#include "common/model/job.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/exits/out_of_memory.h"
#include "worker/agent/host/rank_cgroups.h"
#include "worker/agent/loop/core_runner.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/ports/rank_ports.h"
#include "worker/agent/readings/rank_sampler.h"
#include "worker/agent/store/rank_table.h"
#include "worker/agent/stream/log_shipper.h"
#include "worker/task/exit_record.h"

namespace lockstep::worker::agent {

class RankExits {
 public:
  // Owners that it uses. All are borrowed.
  struct Parts {
    EventLoop* loop = nullptr;
    CoreRunner* core = nullptr;
    RankTable* table = nullptr;
    RankSampler* sampler = nullptr;
    RankPorts* ports = nullptr;
    RankCgroups* cgroups = nullptr;
    LogShipper* logs = nullptr;
  };

  // Calls `processes_left` if processes of a rank could not be killed.
  RankExits(const Parts& parts, std::function<void()> processes_left)
      : parts_(parts), processes_left_(std::move(processes_left)) {}

  // The rank and its tree are gone.
  void OnExited(const RankRef& ref, const task::ExitRecord& record);
  // The rank could not be started: `error` is an errno. If `message` is empty,
  // this finds the message.
  void OnNotStarted(const RankRef& ref, int error, const std::string& message);

  // Adds readings of the host that indicate an OOM kill: the available fraction
  // of its memory, and its count of such kills.
  void NoteAvailable(double part);
  void ReadHostOomKills();

 private:
  // Sets the reason to lack of memory or a taken port.
  void Explain(const RankRef& ref, const task::ExitRecord& record,
               ExitStatus* exit);
  OomEvidence EvidenceOf(const RankRef& ref, const task::ExitRecord& record,
                         bool told_to_end);
  // Adds the program's own message, from its error file or its log.
  void AddExitMessage(const RankRef& ref, ExitStatus* exit);
  // Notes a job whose program could not bind a port that is held for it.
  void NotePlainBind(const RankRef& ref, ExitStatus* exit);

  const Parts parts_;
  const std::function<void()> processes_left_;
  OomWatch oom_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_EXITS_RANK_EXITS_H_
