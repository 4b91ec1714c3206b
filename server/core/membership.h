// Which worker daemons are there, and under which incarnation.
//
// Pure: no I/O, no lock, no clock. Callers pass `now`, which never goes back.
//
//   (new) -Register-> READY -lease over or stream broken-> UNKNOWN
//   UNKNOWN, LOST -a beat on a stream that is still there-> READY
//   UNKNOWN -Register same or higher incarnation-> READY
//   UNKNOWN -silent for lost_after and none of its jobs stepped-> LOST
//   LOST -Register-> READY (its old ranks are told to stop)
//
// UNKNOWN takes no new work, and its tasks and resources stay its own: two
// live copies of a task are worse than waiting. A coordinator that has just
// started treats every stored node as silent since its start.
#ifndef LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_
#define LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/node.h"

namespace lockstep {

struct MembershipOptions {
  Duration lease = std::chrono::seconds(3);
  // Stall deadline plus the time a restarted daemon has to adopt its tasks.
  Duration lost_after = std::chrono::seconds(65);
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
  double cpu_utilization = 0;
  int64_t memory_available_bytes = 0;
};

class Membership {
 public:
  explicit Membership(MembershipOptions options) : options_(options) {}

  // A node known from the store.
  void Restore(const NodeInfo& info, Time now);

  // Admits `info`. Same incarnation renews; a higher counter takes over.
  // Aborted: a later process of this node has registered. Two with the same
  // counter and other nonces are clones: the second is refused with Aborted
  // while the first is READY.
  Status Register(const NodeInfo& info, Time now);
  // What Register would answer; changes nothing.
  Status CheckRegister(const NodeInfo& info) const;

  // Aborted when the incarnation is not the admitted one; NotFound: register.
  Status Beat(const NodeName& node, const Incarnation& incarnation,
              double cpu_utilization, int64_t memory_available_bytes, Time now);

  // A step that needed every rank of a job finished.
  void Prove(const NodeName& node, MonoTime now);

  // Its stream ended.
  void Disconnect(const NodeName& node, const Incarnation& incarnation);

  // Moves nodes whose time is over; returns those whose state changed.
  // `may_lose` says whether silence alone may declare the node LOST (false
  // while it has program jobs).
  template <typename MayLose>
  std::vector<NodeName> Expire(Time now, const MayLose& may_lose) {
    std::vector<NodeName> changed;
    for (auto& [name, member] : members_) {
      if (ExpireOne(&member, now, may_lose(name))) changed.push_back(name);
    }
    return changed;
  }

  const Member* Find(const NodeName& node) const;
  // By name.
  const std::map<NodeName, Member>& members() const { return members_; }

 private:
  bool ExpireOne(Member* member, Time now, bool may_lose) const;

  const MembershipOptions options_;
  std::map<NodeName, Member> members_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_MEMBERSHIP_H_
