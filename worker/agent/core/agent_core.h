// Decides what a worker daemon does about the gangs that it must run.
//
// Pure: no I/O, no lock, no clock. Level-triggered: goals and events arrive in
// any order and any number of times, and each call returns actions.
// Thread-compatible: the daemon's event loop owns it.
//
// A gang is this node's part of one generation of a job:
//
//   phase      on                                  becomes, and does
//   (none)     PREPARE                             PREPARING
//   (none)     LAUNCH, GO                          REFUSED: it never prepared
//   (none)     STOP                                STOPPED: nothing runs
//   PREPARING  every lower generation of the job   kPrepare
//              here is over
//   PREPARING  prepared                            PREPARED
//   PREPARING  refused                             REFUSED
//   PREPARED   PREPARE, other images settled       PREPARING, kRelease,
//                                                  kPrepare
//   PREPARED   PREPARE, for other ranks (a spare    PREPARING, kRelease,
//              node)                               kPrepare
//   PREPARED   PREPARE, with the identity of an    PREPARING, kCheckOutput
//              output directory not seen so far
//   PREPARED   LAUNCH, GO with our ports           LAUNCHED, kStartRank each
//   PREPARED   LAUNCH, GO with other ports         REFUSED
//   LAUNCHED   GO                                  kGo to each joined rank
//   LAUNCHED   GO with a higher `evidence`         kCapture
//   PREPARING,
//   PREPARED   STOP                                STOPPED, kRelease
//   LAUNCHED   STOP                                STOPPING, kAbort, kKillTree
//   LAUNCHED   STOP with `keep_evidence`           STOPPING, kCapture; after
//                                                  that, or keep_time later,
//                                                  kAbort, kKillTree
//   LAUNCHED   a rank failed by itself             kCapture
//   LAUNCHED,
//   STOPPING   the last rank has exited            STOPPED, kRelease
//   STOPPING   `grace` and kForceAfter are over    kKillTree at once, repeated
//   LAUNCHED,  LAUNCH, GO with a higher            LAUNCHED, kKillTree of the
//   STOPPED    `restarts` of a program's task      task's ranks; when all of
//              and no STOP so far                  them ended, kStartRank
//   LAUNCHED,  LAUNCH, GO with a higher            LAUNCHED, kKillTree of that
//   STOPPED    `restarts` of a native rank, or     rank, once and without
//              and no STOP so far                  grace; when it has ended,
//                                                  kStartRank
//   LAUNCHED   GO with a higher `recovery`         kRecover to each rank that
//                                                  has not ended and stays
//   REFUSED,
//   STOPPED    FORGET                              (none), kForget
//   others     FORGET                              as STOP, later forgotten
//
// Goals only rise. A goal below STOP for a generation also stops all lower
// generations of that job. A goal below STOP is refused for a generation lower
// than one that is already here. Each change that the coordinator needs to know
// is a kReport.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_AGENT_CORE_H_
#define LOCKSTEP_WORKER_AGENT_CORE_AGENT_CORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/node.h"
#include "worker/agent/core/action.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/core/local_gang.h"

namespace lockstep::worker::agent {

struct AgentOptions {
  NodeName node;
  // Grace for generations that a higher one replaces and for ranks of a
  // program's restarting task.
  Duration implied_grace = std::chrono::seconds(1);
  // Delay after which the daemon itself sends SIGKILL if the shim has not.
  Duration force_after = std::chrono::seconds(2);
  // How long a stop waits for evidence to be kept.
  Duration keep_time = std::chrono::milliseconds(100);
};

// Result of a successful preparation.
struct PreparedGang {
  std::vector<int32_t> ports;
  int32_t master_port = 0;
  std::map<std::string, int32_t> service_ports = {};
  std::vector<ImageContent> images = {};
  // For the job's history.
  std::vector<std::string> notes = {};
  // Identity as seen from this host; empty: not checked.
  std::string output_identity = {};
};

class AgentCore {
 public:
  explicit AgentCore(AgentOptions options) : options_(std::move(options)) {}

  // Adds a gang that an earlier daemon of this node started. `status` holds its
  // ranks; a rank without an exit is alive as far as is known.
  void Adopt(const Assignment& assignment, GangStatus status);

  // Aborted: the coordinator has a lower epoch than an earlier one.
  // FailedPrecondition: a higher generation of the job is here.
  Status OnAssignment(const Assignment& assignment, Time now, Actions* out);

  // If other images were settled meanwhile, prepares again.
  void OnPrepared(const GangKey& key, PreparedGang prepared, Time now,
                  Actions* out);
  void OnOutputChecked(const GangKey& key, std::string identity, Actions* out);
  void OnRefused(const GangKey& key, Cause cause, Actions* out);
  // Its exec succeeded. Repeats do nothing.
  void OnRankStarted(const GangKey& key, int32_t rank, int64_t pid,
                     Actions* out);
  // The rank is a member of a communicator. Ranks of programs say so only if
  // they can recover.
  void OnRankJoined(const GangKey& key, int32_t rank, const RankJoin& join,
                    Actions* out);
  void OnRankNews(const GangKey& key, int32_t rank, const RankNews& news,
                  Time now, Actions* out);
  // The rank and its tree have ended. The first exit counts.
  void OnRankExited(const GangKey& key, int32_t rank, ExitStatus exit,
                    const RankProgress& progress, const Usage& usage,
                    Actions* out);
  // Evidence of the gang's ranks is on disk, as far as that was possible. The
  // answer to kCapture, with its `evidence`.
  void OnCaptured(const GangKey& key, uint32_t evidence, Time now,
                  Actions* out);
  // Call at NextDeadline or later.
  void OnTick(Time now, Actions* out);
  std::optional<MonoTime> NextDeadline() const;

  const LocalGang* Find(const GangKey& key) const;
  const std::map<GangKey, LocalGang>& gangs() const { return gangs_; }
  uint64_t epoch() const { return epoch_; }
  // The coordinator has another history, whose epochs are not comparable.
  void ForgetEpoch() { epoch_ = 0; }

 private:
  void Raise(const GangKey& key, const Assignment& assignment, Time now,
             Actions* out);
  void StartFresh(const GangKey& key, const Assignment& assignment,
                  Actions* out);
  void Stop(const GangKey& key, LocalGang* gang, Duration grace,
            const std::string& message, Time now, Actions* out);
  void Launch(const GangKey& key, LocalGang* gang, Actions* out);
  void Over(const GangKey& key, LocalGang* gang, GangPhase phase, Actions* out);
  void PrepareWaiting(const JobName& job, Actions* out);
  void PrepareAgain(const GangKey& key, LocalGang* gang, Actions* out);
  // Enters PREPARED, unless more was settled meanwhile than was checked.
  void EndPreparing(const GangKey& key, LocalGang* gang, Actions* out);

  const AgentOptions options_;
  uint64_t epoch_ = 0;
  std::map<GangKey, LocalGang> gangs_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_AGENT_CORE_H_
