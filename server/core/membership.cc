#include "server/core/membership.h"

#include <algorithm>

namespace lockstep {

void Membership::Restore(const NodeInfo& info, Time now) {
  Member& member = members_[info.name];
  member.info = info;
  member.state = NodeState::kUnknown;
  member.last_beat = now.mono;
  member.last_proof = now.mono;
  member.message = "not heard of since the coordinator started";
}

Status Membership::CheckRegister(const NodeInfo& info) const {
  const auto it = members_.find(info.name);
  if (it != members_.end()) {
    const Member& known = it->second;
    const Incarnation& old = known.info.incarnation;
    if (info.incarnation.counter < old.counter) {
      return WithReason(
          Aborted("node {}: a later process of this node (start {}) has "
                  "registered; this one is start {}",
                  info.name, old.counter, info.incarnation.counter),
          "STALE_INCARNATION");
    }
    if (info.incarnation.counter == old.counter &&
        info.incarnation.nonce != old.nonce &&
        known.state == NodeState::kReady) {
      return WithReason(
          Aborted("node {}: another live process has the same identity: is "
                  "the directory of its daemon a copy?",
                  info.name),
          "CLONED_NODE");
    }
  }
  return OkStatus();
}

Status Membership::Register(const NodeInfo& info, Time now) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRegister(info));
  Member& member = members_[info.name];
  member.info = info;
  member.state = NodeState::kReady;
  member.message.clear();
  member.last_beat = now.mono;
  member.last_beat_wall = now.wall;
  member.last_proof = now.mono;
  return OkStatus();
}

Status Membership::Beat(const NodeName& node, const Incarnation& incarnation,
                        double cpu_utilization, int64_t memory_available_bytes,
                        Time now) {
  const auto it = members_.find(node);
  if (it == members_.end()) {
    return NotFound("node {} is not a member: register first", node);
  }
  Member& member = it->second;
  if (!(member.info.incarnation == incarnation)) {
    return WithReason(
        Aborted("node {}: another process of this node has registered", node),
        "STALE_INCARNATION");
  }
  member.state = NodeState::kReady;
  member.message.clear();
  member.last_beat = now.mono;
  member.last_beat_wall = now.wall;
  member.cpu_utilization = cpu_utilization;
  member.memory_available_bytes = memory_available_bytes;
  return OkStatus();
}

void Membership::Prove(const NodeName& node, MonoTime now) {
  const auto it = members_.find(node);
  if (it != members_.end()) it->second.last_proof = now;
}

void Membership::Disconnect(const NodeName& node,
                            const Incarnation& incarnation) {
  const auto it = members_.find(node);
  if (it == members_.end() || !(it->second.info.incarnation == incarnation)) {
    return;
  }
  if (it->second.state == NodeState::kReady) {
    it->second.state = NodeState::kUnknown;
    it->second.message = "its stream ended";
  }
}

const Member* Membership::Find(const NodeName& node) const {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second;
}

bool Membership::ExpireOne(Member* member, Time now, bool may_lose) const {
  const Duration silent = now.mono - member->last_beat;
  if (member->state == NodeState::kReady && silent > options_.lease) {
    member->state = NodeState::kUnknown;
    member->message = fmt::format("silent for longer than its lease of {}",
                                  FormatDuration(options_.lease));
    return true;
  }
  const Duration unproven =
      std::min(silent, Duration(now.mono - member->last_proof));
  if (member->state == NodeState::kUnknown && may_lose &&
      unproven > options_.lost_after) {
    member->state = NodeState::kLost;
    member->message = fmt::format("silent for {} and none of its jobs stepped",
                                  FormatDuration(unproven));
    return true;
  }
  return false;
}

}  // namespace lockstep
