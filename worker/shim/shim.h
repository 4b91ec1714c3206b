// The supervisor of one rank: starts it, keeps its output, cleans up after it
// and records how it ended. One thread, one loop around poll(2).
//
//   starting -> running -> ending -> exited -> (forgotten, or no client)
//      |  exec failed         ^
//      +----------------------+
//
// ending: the rank is reaped; its leftover processes are killed and reaped, and
// its pipes are read to their end, both within limits. exited: the exit record
// is being written; on disk it is authoritative. A shim with a durable record
// stays only while a client is connected that has not sent FORGET. The shim
// does not need a daemon, unless its spec has a fence (fence.h).
#ifndef LOCKSTEP_WORKER_SHIM_SHIM_H_
#define LOCKSTEP_WORKER_SHIM_SHIM_H_

#include <poll.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/shim/container.h"
#include "worker/shim/exit_recorder.h"
#include "worker/shim/fence.h"
#include "worker/shim/launch.h"
#include "worker/shim/rank_output.h"
#include "worker/shim/server.h"
#include "worker/shim/session.h"
#include "worker/task/exit_record.h"
#include "worker/task/shim_spec.h"
#include "worker/task/task_record.h"

namespace lockstep::worker::shim {

// Makes this process a shim: it ignores signals, leads a session, collects
// orphans, and has SIGCHLD blocked. A repeat does nothing. Returns false and
// sets errno on failure.
bool BecomeShim();

class Shim {
 public:
  // `launch` has the rank's process if that waits already (warm.h).
  explicit Shim(task::ShimSpec spec, Launch launch = {});

  // Returns the process's exit code: 0 once the exit record is on disk or a
  // daemon has read it, 3 if another shim of this rank runs (nothing was
  // changed), else 1. Prints a line to standard error for 1.
  int Run();

 private:
  using Phase = task::ShimReply::Phase;
  // How far the phase "ending" is.
  struct Ending {
    bool container_ended = false;
    bool tree_gone = false;
    int64_t tree_deadline = 0;
    int64_t drain_deadline = 0;
    // A daemon has read the exit record.
    bool forgotten = false;
  };

  // Interval of repeated kills until the tree is gone.
  static constexpr int64_t kKillAgain = 10 * kNanosPerMilli;

  bool SetUp(std::string* error, int* error_number);
  bool StartRank(std::string* error, int* error_number);
  bool WriteTaskRecord(std::string* error, int* error_number);
  void Turn();
  int PollTimeout(int64_t now) const;

  void OnChild();
  void AddUsage(const rusage& usage);
  void OnStartStatus();
  void OnInitReport();
  void OnRankEnded(int wait_status);
  // Continues the steps of ending until both are done.
  void GoOnEnding(int64_t now);
  void KillWhatIsDue(int64_t now);
  // Ends the rank if no daemon has renewed its fence in time.
  void CheckFence();
  // Sends SIGTERM to all of it.
  void Terminate();
  void Finish();
  void NotStarted(const std::string& message, int error_number);
  void TryToRecord(int64_t now);
  bool Done() const;

  task::ShimReply State(uint32_t id) const;
  task::ShimReply OnRequest(const task::ShimRequest& request,
                            std::vector<Fd> fds);
  task::ShimReply Refuse(uint32_t id, const std::string& why) const;
  task::ShimReply OnSignal(const task::ShimRequest& request);
  void EnterPhase(Phase phase);

  const task::ShimSpec spec_;
  RankOutput output_;
  Server server_;
  Fd signals_;
  Launch launch_;
  ContainerKeeper container_;
  Fence fence_;
  Sessions sessions_;
  task::ProcessRef self_;
  task::ExitRecord record_;  // Filled as things become known.

  ExitRecorder recorder_;
  Phase phase_ = Phase::kStarting;
  bool rank_reaped_ = false;
  int64_t kill_at_ = -1;  // MonoNanos; -1: no kill was asked for.
  Ending ending_;
};

}  // namespace lockstep::worker::shim

#endif  // LOCKSTEP_WORKER_SHIM_SHIM_H_
