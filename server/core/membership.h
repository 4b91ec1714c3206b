// Which worker daemons are there, and under which incarnation.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
//   (new) -Register-> READY -lease over or stream broken-> UNKNOWN
//   UNKNOWN, LOST -a beat on a stream that is still there-> READY
//   UNKNOWN -Register same or higher incarnation-> READY
//   UNKNOWN -silent for too long and none of its jobs stepped-> LOST
//   UNKNOWN -not reached by its neighbours either (inquiry.h)-> LOST
//   LOST -Register-> READY (its old ranks are told to stop)
//
// UNKNOWN takes no new work, and its tasks and resources stay its own: two
// live copies of a task are worse than waiting. A coordinator that has just
// started treats every stored node as silent since its start.
//
// A daemon that registers while the stream of another one of its name is open
// is a newcomer. It waits until it is known whether the other one lives: a
// restart may be quicker than the end of a connection, a copy of a machine or
// of a daemon's directory comes beside a daemon that beats.
//
// Beside that a node may be drained (an operator's wish, stored) or in
// quarantine: two daemons that live at the same time claim its name. Both take
// no new work.
#ifndef LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_
#define LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "server/core/clock_offset.h"
#include "server/core/node_approval.h"
#include "server/core/node_record.h"

namespace lockstep {

struct MembershipOptions {
  Duration lease = std::chrono::seconds(3);
  // Stall deadline plus the time a restarted daemon has to adopt its tasks.
  Duration lost_after = std::chrono::seconds(65);
  // Two refusals of an older daemon within this time are a quarantine, and so
  // is one newcomer beside a daemon that lives; it ends when only one was seen
  // for as long.
  Duration contest_window = std::chrono::minutes(1);
  // How long a newcomer waits for a beat of the daemon whose stream is open: at
  // least the time between two beats.
  Duration contest_judging = std::chrono::seconds(1);
  // NVIDIA's Xids after which a GPU gets no new work until its host boots or
  // an operator undrains the node. See
  // https://docs.nvidia.com/deploy/xid-errors: double-bit ECC error, NVLink
  // error, fallen off the bus, contained and uncontained ECC error, GSP
  // timeout, GSP error.
  std::set<int32_t> fatal_xids = {48, 74, 79, 94, 95, 119, 120};
  // What a new node may have without an operator's approval.
  Resources node_limit = kDefaultNodeLimit;
};

struct Member {
  NodeInfo info;
  NodeState state = NodeState::kUnknown;
  // Of the last message, or of the coordinator's start.
  MonoTime last_beat;
  WallTime last_beat_wall{};
  // One of its jobs proved that it lives (a step that all ranks finished).
  MonoTime last_proof;
  // Why it is not READY.
  std::string message;
  NodeReadings readings;
  ClockOffset clock;
  std::optional<Drain> drain;
  std::vector<Event> events;
  WallTime state_time{};
  std::vector<Gpu> missing_gpus;
  // As in NodeRecord.
  std::optional<Resources> approved;
  std::optional<Resources> offered;
  std::vector<Gpu> withheld_gpus;
  // When a GPU's error of this number was last an event: index and Xid.
  std::map<std::pair<int32_t, int32_t>, MonoTime> gpu_errors;
  // Raised by every event that comes with a beat: they are to be stored.
  uint64_t news = 0;
  // When another live daemon claimed the name.
  std::deque<MonoTime> contests;
  // Names both; empty: not in quarantine.
  std::string quarantine;
  // It had tasks since it fell silent: it is not a machine that was switched
  // off for maintenance.
  bool silent_with_tasks = false;

  // Missing, or offered and bad.
  size_t LostGpus() const;
  // Indices of the offered GPUs that get no new work: silent, or with a fault.
  std::vector<int32_t> BadGpus() const;
  // Why `gpu`, which is offered, is bad; empty: it is not.
  std::string GpuTrouble(const Gpu& gpu) const;
  // Whether jobs may be placed on it.
  bool TakesWork() const {
    return state == NodeState::kReady && !drain && quarantine.empty();
  }
  // For how long neither it nor a step said that it lives.
  Duration Unproven(MonoTime now) const {
    return std::min(Duration(now - last_beat), Duration(now - last_proof));
  }
  // What is shown of it: silence first, then quarantine, then drain. An empty
  // node that was drained may be switched off: it stays DRAINED when it falls
  // silent. `busy`: something runs or is held there.
  NodeState Shown(bool busy) const;
  NodeRecord Record() const {
    return {info,         drain,    events,  state_time,
            missing_gpus, approved, offered, withheld_gpus};
  }
  // What is stored of it is what `record` says.
  void Take(const NodeRecord& record);
  void EndQuarantine();
};

// See above.
struct Newcomer {
  NodeInfo info;
  // Without a beat of the other daemon it takes over then.
  MonoTime deadline;
  bool other_beat = false;
};

enum class Judgement { kOpen, kAdmitted, kRefused };

class Membership {
 public:
  explicit Membership(MembershipOptions options) : options_(options) {}

  // A node known from the store.
  void Restore(const NodeRecord& record, Time now);

  // Admits `info`. Same incarnation renews; a higher counter takes over.
  // Aborted: a later process of this node has registered; the sentence says
  // what to do when the directory that counts the starts was emptied. Two with
  // the same counter and other nonces are clones: the second is refused with
  // Aborted while the first is READY. CLONED_NODE is the reason where the
  // daemon is of another boot than the one that was admitted, so that no
  // process of its own may go on; STALE_INCARNATION else.
  Status Register(const NodeInfo& info, Time now);
  // What Register would answer; changes nothing.
  Status CheckRegister(const NodeInfo& info) const;
  // The record after `info` registers, with the event that says how.
  NodeRecord Registered(const NodeInfo& info, WallTime now) const;

  // Whether `info` is a newcomer where the admitted daemon's stream is open.
  bool IsNewcomer(const NodeInfo& info) const;
  Newcomer Expect(const NodeInfo& info, MonoTime now) const {
    return {info, now + options_.contest_judging};
  }
  // A host that booted has no daemon of before that could still beat, so with
  // another boot id one beat is proof. With the same one the last beats of a
  // daemon that ended may arrive late, but then its stream ends, too.
  Judgement Judge(const Newcomer& newcomer, bool other_is_connected,
                  MonoTime now) const;
  // While a quarantine lasts, a daemon of another boot does not get in, not
  // even while the admitted one is away: Aborted.
  Status CheckBarred(const NodeInfo& info, MonoTime now) const;
  // What a refused newcomer is answered.
  Status Refusal(const NodeInfo& info) const;

  // A daemon other than the admitted one speaks for the node while that one
  // is alive; `proven`: it has beaten since. True: the node has just come into
  // quarantine.
  bool Contest(const NodeInfo& other, Time now, bool proven);

  // Aborted when the incarnation is not the admitted one; NotFound: register.
  // GPUs that fall silent or answer again, and errors of theirs, are events:
  // of the same error of one GPU one in ten minutes, at most 8 with a beat. An
  // Xid of `fatal_xids` becomes the GPU's fault (Gpu::fault).
  Status Beat(const NodeName& node, const Incarnation& incarnation,
              NodeReadings readings, Time now);

  // A step that needed every rank of a job finished then. Proofs may come late.
  void Prove(const NodeName& node, MonoTime now);

  // That its neighbours do not reach the silent node is an event.
  void NoteUnreachable(const NodeName& node, const std::string& neighbours,
                       WallTime now);

  // Nobody could be heard for so long: that time is nobody's silence.
  void Excuse(Duration away, MonoTime now);

  // Whether jobs hold something on a node that is not READY; does nothing for
  // others.
  void NoteTasks(const NodeName& node, bool has_tasks);

  // Its stream ended.
  void Disconnect(const NodeName& node, const Incarnation& incarnation,
                  Time now);

  // What a command made of the record; it is stored already.
  void Apply(const NodeRecord& record);
  // Adds an event to the node's history; the caller stores it.
  void Note(const NodeName& node, Reason reason, std::string message,
            WallTime now);
  // An operator says that all is well; that is stored already.
  void EndQuarantine(const NodeName& node);
  void Forget(const NodeName& node) { members_.erase(node); }

  // Moves nodes whose time is over; returns those that changed.
  // `patience(node)` says after how much silence without a step the node
  // counts as LOST; nullopt: never by silence alone (it has program jobs).
  template <typename Patience>
  std::vector<NodeName> Expire(Time now, const Patience& patience) {
    std::vector<NodeName> changed;
    for (auto& [name, member] : members_) {
      const bool calm = ExpireQuarantine(&member, now);
      // Asked of the few that are silent only.
      const bool silent = member.state == NodeState::kUnknown;
      if (ExpireOne(&member, now, silent ? patience(name) : std::nullopt) ||
          calm) {
        changed.push_back(name);
      }
    }
    return changed;
  }

  const Member* Find(const NodeName& node) const;
  // By name.
  const std::map<NodeName, Member>& members() const { return members_; }

 private:
  static void Enter(Member* member, NodeState state, Reason reason,
                    std::string message, WallTime now);
  bool ExpireOne(Member* member, Time now,
                 const std::optional<Duration>& patience) const;
  bool ExpireQuarantine(Member* member, Time now) const;

  const MembershipOptions options_;
  std::map<NodeName, Member> members_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_
