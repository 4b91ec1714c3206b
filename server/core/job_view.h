// What the coordinator knows about a job besides the job itself: the state of
// its nodes, their last reports, and the times at which waits began. The rules
// of lifecycle.h and its parts take it as input. Plain values.
#ifndef LOCKSTEP_SERVER_CORE_JOB_VIEW_H_
#define LOCKSTEP_SERVER_CORE_JOB_VIEW_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/core/job.h"
#include "server/core/lost_pair.h"
#include "server/core/node_record.h"
#include "server/core/stall.h"

namespace lockstep::server {

struct LifecycleTimeouts {
  // Excludes the time for fetching, which has its own limit.
  Duration prepare = std::chrono::seconds(10);
  Duration fetch = std::chrono::minutes(30);
  // Until a node sees the file that rank 0's node wrote into the output
  // directory. Longer than the node's own limit.
  Duration share = std::chrono::seconds(90);
  // From LAUNCH until every rank has started, and from then until every rank
  // has joined.
  Duration launch = std::chrono::seconds(120);
  Duration join = std::chrono::seconds(30);
  // From when every rank runs until every rank has joined a recovery, which
  // includes the transfer of the state.
  Duration recover = std::chrono::minutes(2);
  // How long ranks hold their state until another node is ready in place of a
  // lost one, from its last sign. The ranks themselves hold it for 10 minutes,
  // which includes the forming (worker/runtime/session.h).
  Duration hold = std::chrono::minutes(8);
};

// When what a recovery waits for began (recovery.h).
struct RecoveryWaits {
  // Job::recovery.
  uint32_t recovery = 0;
  // Ranks have left its communicator, and none has ended.
  std::optional<MonoTime> parked;
  // All ranks run, and some have not joined it.
  std::optional<MonoTime> started;
};

struct JobView {
  struct Node {
    // READY, UNKNOWN or LOST.
    NodeState state = NodeState::kUnknown;
    // An operator declared the node gone for good. It counts as LOST, with a
    // cause of its own.
    bool forgotten = false;
    // The node may be given new work.
    bool takes_work = true;
    // The node failed jobs and gets no work for a while (strikes.h).
    bool cools = false;
    // Indices of its GPUs that get no new work.
    std::vector<int32_t> bad_gpus;
    std::optional<Drain> drain;
    // The last sign of it.
    WallTime last_sign{};
    // IP address of its data plane.
    std::string address;
    // Is added to the node's times (clock_offset.h).
    Duration clock_offset{};
    // The node has reported since the coordinator started. What it does not
    // list does not exist there.
    bool reported = false;
    // A daemon of another boot speaks for the node, and steps prove that the
    // job's ranks still run where they were started. The daemon's reports on
    // the current generation are ignored, and it gets no assignments for it.
    bool unseen = false;
    // It was told, since it registered, to restart ranks of the current
    // generation, and has not reported that it does. If it says STOPPED, that
    // was before.
    bool restarting = false;
    // Its last report on each generation.
    std::map<Generation, GangStatus> gangs;
  };
  // Every node that the job's tasks or holds name.
  std::map<NodeName, Node> nodes;
  // When the job entered its state; within PREPARING, when its cluster spec was
  // made; and when all of its ranks had started. The caller keeps these times
  // in memory.
  MonoTime state_since;
  std::optional<MonoTime> all_started_since;
  // By rank and its number of restarts: when its wait began, see restart.h.
  std::map<std::pair<int32_t, int32_t>, MonoTime> awaited_since;
  RecoveryWaits recovery;
  // The straggler, see stall.h. Absent while evidence of it is captured.
  std::optional<Stall> stall;
  // The ranks that evidence names as the cause of the stall, of a program that
  // can recover in place. Absent: none was judged in time.
  std::optional<std::set<int32_t>> stall_causes;
  // Evidence of the ranks is being captured. A limit waits for it.
  bool capturing = false;
  // What a generation is launched with, see silence.h.
  std::optional<Fence> fence;
  // The job is to be ended because no rank works (idle_watch.h).
  struct IdleEnd {
    Cause cause;
    // Since this was decided.
    Duration since{};
  };
  std::optional<IdleEnd> idle_end;
  // There is room for the job with more tasks than it has (rescale.h).
  struct Room {
    int32_t size = 0;
    // For so long.
    Duration since{};
  };
  std::optional<Room> room;
  // Assignment::evidence of the generation.
  uint32_t evidence_asked = 0;
  // For a generation that is being given up: the nodes that it waited for
  // (evidence.h), whether all its ranks stalled in one all-reduce (stall.h),
  // and which of its nodes reach each other (pair_probe.h). The decision waits
  // while that probe runs.
  std::set<NodeName> late;
  bool all_stood = false;
  bool testing_pairs = false;
  std::vector<LostPair> unreached;
  std::set<std::pair<NodeName, NodeName>> reached;
  // The caller draws it for a new generation: the rules are deterministic.
  std::string fresh_key;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_JOB_VIEW_H_
