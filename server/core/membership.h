// Tracks the worker daemons: their state and their incarnation.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
//   (new) -Register-> READY -lease over or stream broken-> UNKNOWN
//   UNKNOWN, LOST -a beat on a stream that is still open-> READY
//   UNKNOWN -Register same or higher incarnation-> READY
//   UNKNOWN -silent for too long and none of its jobs stepped-> LOST
//   UNKNOWN -not reached by its neighbours either (inquiry.h)-> LOST
//   UNKNOWN -its programs have ended by themselves (silence.h)-> LOST
//   LOST -Register-> READY (its old ranks are stopped)
//
// An UNKNOWN node takes no new work, and keeps its tasks and resources: two
// live copies of a task are worse than waiting. A coordinator that has just
// started treats every stored node as silent since its start.
//
// A daemon that registers while the stream of another daemon of its name is
// open is a newcomer. It waits until it is known whether the other daemon is
// alive. A restart may be faster than the end of a connection; a copy of a
// machine or of a daemon's directory appears while the other daemon still
// beats.
//
// In addition, a node may be drained (a stored order of an operator) or in
// quarantine, if two live daemons claim its name. Neither gets new work.
#ifndef LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_
#define LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "server/core/clock_offset.h"
#include "server/core/gpu_checking.h"
#include "server/core/gpu_verdict.h"
#include "server/core/node_approval.h"
#include "server/core/node_record.h"

namespace lockstep::server {

struct MembershipOptions {
  Duration lease = std::chrono::seconds(3);
  // Stall deadline plus the time a restarted daemon has to adopt its tasks.
  Duration lost_after = std::chrono::seconds(65);
  // Two refusals of an older daemon within this time start a quarantine, and so
  // does one newcomer while the other daemon is alive. It ends when only one
  // daemon was seen for this time.
  Duration contest_window = std::chrono::minutes(1);
  // How long a newcomer waits for a beat of the daemon whose stream is open: at
  // least the time between two beats.
  Duration contest_judging = std::chrono::seconds(1);
  GpuVerdictOptions gpus = {};
  // Resources of a new node that need no approval.
  Resources node_limit = kDefaultNodeLimit;
};

// The stored and soft state of a node.
struct Member : NodeRecord {
  NodeState state = NodeState::kUnknown;
  // Time of the last message, or of the coordinator's start.
  MonoTime last_beat;
  WallTime last_beat_wall{};
  // Last evidence from a job that it is alive (a step that all ranks finished).
  MonoTime last_evidence;
  // Why it is not READY.
  std::string message;
  NodeReadings readings;
  ClockOffset clock;
  // When GPUs were first reported as not free, by index, and whether that has
  // been an event.
  struct Reclaim {
    MonoTime since;
    bool said = false;
  };
  std::map<int32_t, Reclaim> reclaims;
  GpuChecking checking;
  // Pids of stuck processes that have been events.
  std::set<int64_t> stuck;
  // By GPU index and Xid: when this error was last an event.
  std::map<std::pair<int32_t, int32_t>, MonoTime> gpu_errors;
  // Counts the events from heartbeats, which must be stored.
  uint64_t news = 0;
  // When another live daemon claimed the name.
  std::deque<MonoTime> contests;
  // Names both daemons. Empty if not in quarantine.
  std::string quarantine;
  // It had tasks since it fell silent, so it was not simply switched off for
  // maintenance.
  bool silent_with_tasks = false;

  // Number of GPUs that are missing, or offered and silent without a verdict.
  size_t LostGpus() const;
  // Indices of offered GPUs that are silent or withheld.
  std::vector<int32_t> FaultyGpus() const;
  // The same, and those that are not free after their rank's end or are being
  // checked: they get no new work.
  std::vector<int32_t> BadGpus() const;
  // Why `gpu`, an offered one, is bad; empty if it is not.
  std::string GpuTrouble(const Gpu& gpu) const;
  GpuState StateOf(const Gpu& gpu) const;
  // Null if the GPU is free or a rank holds it.
  const GpuReclaim* ReclaimOf(int32_t gpu) const;
  // Whether jobs may be placed on it.
  bool TakesWork() const {
    return state == NodeState::kReady && !drain && quarantine.empty();
  }
  // Time since the last evidence that it is alive: a beat or a step.
  Duration SinceEvidence(MonoTime now) const {
    return std::min(Duration(now - last_beat), Duration(now - last_evidence));
  }
  // The state to show: silence first, then quarantine, then drain. A drained
  // node without work may be switched off, so it stays DRAINED when it falls
  // silent. `busy` says whether something runs or is held there.
  NodeState Shown(bool busy) const;
  const NodeRecord& Record() const { return *this; }
  // Sets the stored fields from `record`.
  void Take(const NodeRecord& record) {
    static_cast<NodeRecord&>(*this) = record;
  }
  void EndQuarantine();
};

// A daemon that waits for admission, as described above.
struct Newcomer {
  NodeInfo info;
  // When it registered. Without a beat of the other daemon it takes over
  // contest_judging later.
  MonoTime since;
  bool other_beat = false;
};

enum class Judgement { kOpen, kAdmitted, kRefused };

class Membership {
 public:
  explicit Membership(MembershipOptions options)
      : options_(options), judge_(options.gpus) {}

  // A node known from the store.
  void Restore(const NodeRecord& record, Time now);

  // Admits `info`. The same incarnation renews; a higher counter takes over.
  // Aborted: a later process of this node has registered. The message explains
  // what to do if the directory that counts the starts was emptied. Two daemons
  // with the same counter and different nonces are clones: the second is
  // refused with Aborted while the first is READY. The reason is CLONED_NODE if
  // the daemon belongs to another boot than the admitted one, so that none of
  // its processes may continue; otherwise STALE_INCARNATION.
  // `reclaims`: its GPUs that are not free.
  Status Register(const NodeInfo& info, Time now,
                  std::vector<GpuReclaim> reclaims = {});
  // Returns what Register would return; changes nothing.
  Status CheckRegister(const NodeInfo& info) const;
  // Returns the record after `info` registers, with the matching event.
  NodeRecord Registered(const NodeInfo& info, WallTime now) const;

  // Whether `info` is a newcomer if the admitted daemon's stream is open.
  bool IsNewcomer(const NodeInfo& info) const;
  // After a boot, no earlier daemon of the host can still beat. So if the boot
  // ids differ, one beat proves that two daemons are alive. If they are equal,
  // the last beats of an ended daemon may arrive late, but its stream ends,
  // too.
  Judgement Judge(const Newcomer& newcomer, bool other_is_connected,
                  MonoTime now) const;
  // Aborted if `info` belongs to another boot than the admitted daemon during a
  // quarantine, even while the admitted daemon is disconnected.
  Status CheckBarred(const NodeInfo& info, MonoTime now) const;
  // The error that a refused newcomer receives.
  Status Refusal(const NodeInfo& info) const;

  // Records that another daemon claims the node while the admitted one is
  // alive. `proven`: the admitted one has beaten since. Returns true if this
  // starts a quarantine.
  bool Contest(const NodeInfo& other, Time now, bool proven);

  // Aborted if the incarnation is not the admitted one; NotFound if the node
  // must register first. Adds events for GPUs that fall silent or answer again,
  // and for GPU errors: at most one in ten minutes for the same error of one
  // GPU, and at most 8 with a beat. A verdict (gpu_verdict.h) becomes the GPU's
  // fault (Gpu::fault).
  Status Beat(const NodeName& node, const Incarnation& incarnation,
              NodeReadings readings, Time now);

  // A GPU by its node and index.
  using GpuRef = std::pair<NodeName, int32_t>;
  // Records that a run of the job `uid` on `gpus` ended; those of the rank that
  // failed first are in `died`. Returns the nodes with a new verdict.
  std::set<NodeName> NoteRun(const std::vector<GpuRef>& gpus,
                             const std::set<GpuRef>& died,
                             const std::string& uid, Time now);
  // An operator says that these GPUs of the node are well; empty: all are.
  void LiftFaults(const NodeName& node, const std::vector<int32_t>& gpus);

  // Checks of GPUs (member_checks.h). Of unknown nodes they do nothing.
  void BeginCheck(const NodeName& node, const GpuCheckOrder& order, bool asked,
                  Time now);
  // Returns the checks of the order's GPUs.
  std::vector<GpuCheck> EndCheck(const NodeName& node,
                                 const GpuCheckAnswer& answer, Time now);

  // Records liveness evidence: a step that needed every rank of a job finished
  // at `now`. Evidence may arrive late.
  void RecordLiveness(const NodeName& node, MonoTime now);

  // Extends the leases of all nodes by `away`, a time in which the coordinator
  // could not receive beats.
  void ExtendLeases(Duration away, MonoTime now);

  // Records whether jobs hold something on a node that is not READY. Does
  // nothing for READY nodes.
  void NoteTasks(const NodeName& node, bool has_tasks);

  // Records that the node's stream ended.
  void Disconnect(const NodeName& node, const Incarnation& incarnation,
                  Time now);

  // Applies the record that a command has already stored.
  void Apply(const NodeRecord& record);
  // Adds an event to the node's history. The caller stores it.
  void Note(const NodeName& node, Reason reason, std::string message,
            WallTime now);
  // Ends the quarantine by an operator's command, which is already stored.
  void EndQuarantine(const NodeName& node);
  void Forget(const NodeName& node) { members_.erase(node); }

  // Applies expired leases, quarantines and verdicts on GPUs. Returns the nodes
  // that changed. `patience(node)` returns how much silence without a step
  // makes the node LOST; nullopt while a program there may live.
  std::vector<NodeName> Expire(
      Time now,
      const std::function<std::optional<Duration>(const NodeName&)>& patience);

  const Member* Find(const NodeName& node) const;
  // By name.
  const std::map<NodeName, Member>& members() const { return members_; }

 private:
  const MembershipOptions options_;
  GpuJudge judge_;
  std::map<NodeName, Member> members_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_
