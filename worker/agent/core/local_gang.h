// This node's part of one generation of a job, and the rules that concern it
// alone: AgentCore has those between gangs. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_LOCAL_GANG_H_
#define LOCKSTEP_WORKER_AGENT_CORE_LOCAL_GANG_H_

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

namespace lockstep::worker::agent {

// Exit code of a native rank that ended because its peer was gone.
inline constexpr int32_t kPeerLostCode = 75;
// Newest events of a gang that are kept and reported.
inline constexpr size_t kKeptEvents = 256;

// Limit of lost peers that a gang keeps: the first report of each pair.
inline constexpr size_t kKeptLostPeers = 1024;
inline constexpr size_t kMaxLostPeerError = 512;

// A report of a rank. An absent field means no change.
struct RankNews {
  std::optional<Checkpoint> checkpoint;
  std::string artifact_name;
  std::string artifact_path;
  std::string event;
  Reason event_reason = Reason::kNone;
  std::string failure;
  Reason failure_reason = Reason::kNone;
  bool victim = false;
  std::optional<int64_t> resumed_step;
  uint32_t directive_done = 0;
  std::string reduction_plan = {};
  // Ranks that it lost or could not reach, with its error, at most
  // kMaxLostPeerError bytes.
  std::vector<int32_t> lost_peers = {};
  std::string lost_peer_error = {};
  // As in RankStatus; 0: no change.
  uint32_t parked = 0;
};

// A rank says it when it is a member of a communicator.
struct RankJoin {
  // That formed the communicator; 0: the first one.
  uint32_t recovery = 0;
  // As in RankStatus.
  bool recoverable = false;
  bool elastic = false;
};

struct LocalGang {
  // The highest goal so far, with its fields.
  Assignment assignment;
  GangStatus status;
  bool prepare_asked = false;
  // Settled images at the time of kPrepare.
  std::vector<ImageContent> prepared_with;
  bool forget_when_over = false;
  // Time of the first stop request.
  std::optional<WallTime> stopped_at;
  // Time of the next forced kill.
  std::optional<MonoTime> kill_at;
  // Evidence of this failure was asked for, and is not kept yet.
  bool kept = false;
  bool keeping = false;
  // The stop waits for it until then.
  std::optional<MonoTime> keep_until;
  uint32_t last_event = 0;
  uint32_t last_directive = 0;
  // The rank that got it.
  int32_t chief = 0;
  uint32_t last_evidence = 0;
  // The newest recovery of which this daemon has sent the Welcome.
  uint32_t last_recovery = 0;
  // Native ranks that were killed to be replaced, and by which number.
  std::map<int32_t, int32_t> replaced;
  struct FailureReport {
    std::string failure;
    Reason reason = Reason::kNone;
    bool victim = false;
  };
  std::map<int32_t, FailureReport> failures;
};

// The phase is REFUSED or STOPPED: nothing of the gang runs or is held.
bool IsOver(GangPhase phase);

// Returns the initial status of a gang.
GangStatus FreshStatus(const Assignment& assignment, GangPhase phase);

// Returns the task that `rank` belongs to; null: no task of `spec`.
const LocalTask* TaskOf(const GangSpec& spec, int32_t rank);
// Returns null where the gang has no such rank.
const RankStatus* FindRank(const LocalGang& gang, int32_t rank);
RankStatus* FindRank(LocalGang* gang, int32_t rank);

bool IsNative(const Assignment& assignment);
// Cores of one of the task's ranks; 0: not limited.
double CpusPerRank(const LocalTask& task);
// The GPUs that the cluster spec gives to `rank`.
std::vector<int32_t> GpusOfRank(const Assignment& assignment, int32_t rank);

// The images that the coordinator has settled so far.
std::vector<ImageContent> SettledImages(const Assignment& assignment);
// Returns whether the images `here` match the settled ones.
bool AreSettled(const std::vector<ImageContent>& here,
                const std::vector<ImageContent>& settled);
// Returns whether the assignment is for other ranks than those that the gang
// has prepared for: the coordinator uses a spare node for whichever is needed.
bool IsForOtherRanks(const LocalGang& gang);
// Returns whether the spec has an identity of the output directory that was not
// checked here.
bool MustCheckOutput(const Assignment& assignment, const GangStatus& status);

// FailedPrecondition: the ports in the cluster spec differ from those that
// `node` has leased.
Status CheckPorts(const LocalGang& gang, const NodeName& node);

// The gang was launched and all of its ranks have exited.
bool HasEnded(const LocalGang& gang);

// The assignment's `restarts` of a rank exceeds the rank's own.
bool MustRestart(const LocalGang& gang, const RankStatus& rank);

// Restarts what MustRestart. Of a program all ranks of a task together: kills,
// with `grace`, those that run, and starts all once they have ended. Of a
// native gang each rank alone: kills it at once, as it may be frozen, and
// starts it when it has ended.
void Restart(const GangKey& key, Duration grace, LocalGang* gang, Actions* out);

// Whether `rank` is away, and others that train without it are still on the way
// into the newest recovery here.
bool OthersRecover(const LocalGang& gang, int32_t rank);

// Sends the new Welcome to the ranks of a native gang if `recovery` has risen.
// A rank that is started later gets it when it connects.
void RecoverIfAsked(const GangKey& key, LocalGang* gang, Actions* out);

// Sends GO to the joined ranks of a native gang, and new directives to rank 0.
void Go(const GangKey& key, LocalGang* gang, Actions* out);

// Sends what ends the ranks that still run, with `abort` also over their links,
// and arms the forced kill for `force_after` after the assignment's grace.
void SendStop(const GangKey& key, LocalGang* gang, bool abort,
              Duration force_after, Time now, Actions* out);

// Asks that evidence of the gang be kept, once per failure.
void KeepEvidence(const GangKey& key, LocalGang* gang, Actions* out);

// Asks for evidence of the gang's ranks if the coordinator does so anew.
void CaptureIfAsked(const GangKey& key, LocalGang* gang, Actions* out);

// Stores a report of `rank`. Returns whether the status changed. REQUIRES: the
// gang has `rank`.
bool TakeNews(int32_t rank, const RankNews& news, Time now, LocalGang* gang);

// Completes `exit` with the exit message of `rank`, and marks the rank a victim
// if the daemon or a peer caused its end.
void JudgeExit(int32_t rank, const LocalGang& gang, ExitStatus* exit);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_LOCAL_GANG_H_
