#include "server/core/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/core/job.h"
#include "server/core/member_checks.h"
#include "server/core/member_gpus.h"

namespace lockstep::server {
namespace {

// "host-1 (10.0.0.1, start 7)".
std::string Claimant(const NodeInfo& info) {
  return fmt::format("{} ({}, start {})", info.hostname, info.address,
                     info.incarnation.counter);
}

void Enter(Member* member, NodeState state, Reason reason, std::string message,
           WallTime now) {
  AddEvent(member, reason, message, now);
  member->state = state;
  if (state != NodeState::kReady) {
    // It says what is still so when it is back.
    member->readings.reclaims.clear();
    member->readings.stuck_processes.clear();
  }
  member->state_time = now;
  member->message =
      state == NodeState::kReady ? std::string() : std::move(message);
}

// Returns true if the quarantine of `member` has ended.
bool ExpireQuarantine(const MembershipOptions& options, Member* member,
                      Time now) {
  if (member->quarantine.empty() ||
      now.mono - member->contests.back() <= options.contest_window) {
    return false;
  }
  member->EndQuarantine();
  member->state_time = now.wall;
  AddEvent(member, Reason::kNodeBack,
           fmt::format("only {} has been seen for {}: takes work again",
                       Claimant(member->info),
                       FormatDuration(options.contest_window)),
           now.wall);
  return true;
}

// Returns true if `member` changes state because its lease or `patience` has
// ended.
bool ExpireLease(const MembershipOptions& options, Member* member, Time now,
                 const std::optional<Duration>& patience) {
  const Duration silent = now.mono - member->last_beat;
  if (member->state == NodeState::kReady && silent > options.lease) {
    Enter(member, NodeState::kUnknown, Reason::kNodeSilent,
          fmt::format("silent for longer than its lease of {}",
                      FormatDuration(options.lease)),
          now.wall);
    return true;
  }
  const Duration since_evidence = member->SinceEvidence(now.mono);
  if (member->state == NodeState::kUnknown && patience &&
      since_evidence > *patience) {
    Enter(member, NodeState::kLost, Reason::kNodeLost,
          fmt::format("silent for {} and none of its jobs stepped",
                      FormatDuration(since_evidence)),
          now.wall);
    return true;
  }
  return false;
}

// Null: none is known.
const Gpu* FindGpu(const Membership& members, const Membership::GpuRef& ref) {
  const Member* const member = members.Find(ref.first);
  if (member == nullptr) return nullptr;
  for (const Gpu& gpu : member->info.gpus) {
    if (gpu.index == ref.second) return &gpu;
  }
  return nullptr;
}

}  // namespace

NodeState Member::Shown(bool busy) const {
  if (state != NodeState::kReady) {
    return drain && !busy && !silent_with_tasks ? NodeState::kDrained : state;
  }
  if (!quarantine.empty()) return NodeState::kQuarantined;
  if (drain) return busy ? NodeState::kDraining : NodeState::kDrained;
  return state;
}

void Membership::Restore(const NodeRecord& record, Time now) {
  Member& member = members_[record.info.name];
  Apply(record);
  member.state = NodeState::kUnknown;
  member.last_beat = now.mono;
  member.last_evidence = now.mono;
  member.message = "silent since the coordinator started";
}

void Membership::Apply(const NodeRecord& record) {
  members_[record.info.name].Take(record);
}

Status Membership::CheckRegister(const NodeInfo& info) const {
  const auto it = members_.find(info.name);
  if (it != members_.end()) {
    const Member& known = it->second;
    const Incarnation& old = known.info.incarnation;
    if (info.incarnation.counter < old.counter) {
      const bool same_boot = info.boot_id == known.info.boot_id;
      return WithReason(
          Aborted("node {}: a later process of this node (start {}) has "
                  "registered; this one is start {}: is its --dir an old copy? "
                  "Where the directory was emptied or is new, and no other "
                  "daemon speaks for the node, `lockstep nodes forget {}` lets "
                  "it register as new",
                  info.name, old.counter, info.incarnation.counter, info.name),
          same_boot ? "STALE_INCARNATION" : "CLONED_NODE");
    }
    if (info.incarnation.counter == old.counter &&
        info.incarnation.nonce != old.nonce &&
        known.state == NodeState::kReady) {
      return Refusal(info);
    }
  }
  return OkStatus();
}

bool Membership::IsNewcomer(const NodeInfo& info) const {
  const auto it = members_.find(info.name);
  return it != members_.end() &&
         !(it->second.info.incarnation == info.incarnation) &&
         info.incarnation.counter >= it->second.info.incarnation.counter;
}

Judgement Membership::Judge(const Newcomer& newcomer, bool other_is_connected,
                            MonoTime now) const {
  const Member* known = Find(newcomer.info.name);
  if (known == nullptr) return Judgement::kAdmitted;
  const bool other_boot = known->info.boot_id != newcomer.info.boot_id;
  if (newcomer.other_beat && other_boot) return Judgement::kRefused;
  if (other_is_connected) {
    if (now < newcomer.since + options_.contest_judging)
      return Judgement::kOpen;
    if (newcomer.other_beat) return Judgement::kRefused;
  }
  return CheckBarred(newcomer.info, now).ok() ? Judgement::kAdmitted
                                              : Judgement::kRefused;
}

Status Membership::CheckBarred(const NodeInfo& info, MonoTime now) const {
  const Member* known = Find(info.name);
  if (known == nullptr || known->quarantine.empty() ||
      known->info.boot_id == info.boot_id ||
      now - known->contests.back() > options_.contest_window) {
    return OkStatus();
  }
  return Refusal(info);
}

Status Membership::Refusal(const NodeInfo& info) const {
  const Member* known = Find(info.name);
  return WithReason(
      Aborted("node {}: the daemon on {} speaks for this node, and the one on "
              "{} is refused: is the directory of one a copy of the "
              "other's? Stop one of them and give it an empty --dir and a "
              "certificate of another node; if the wrong one is left, stop it "
              "and run `lockstep nodes undrain {}`",
              info.name, known == nullptr ? "?" : Claimant(known->info),
              Claimant(info), info.name),
      "CLONED_NODE");
}

NodeRecord Membership::Registered(const NodeInfo& info, WallTime now) const {
  const auto it = members_.find(info.name);
  NodeRecord record;
  if (it != members_.end()) record = it->second.Record();
  const NodeInfo old = std::exchange(record.info, info);
  const bool was_ready =
      it != members_.end() && it->second.state == NodeState::kReady;
  if (it == members_.end()) {
    server::AddEvent(&record, Reason::kNodeRegistered,
                     fmt::format("registered from {}: {}", Claimant(info),
                                 Describe(info.capacity)),
                     now);
  } else if (!old.boot_id.empty() && old.boot_id != info.boot_id) {
    server::AddEvent(&record, Reason::kNodeRebooted,
                     fmt::format("registered after a boot of its host, from {}",
                                 Claimant(info)),
                     now);
  } else if (old.incarnation.counter != info.incarnation.counter) {
    server::AddEvent(&record, Reason::kNodeRestarted,
                     fmt::format("its daemon was started again (start {})",
                                 info.incarnation.counter),
                     now);
  } else if (!was_ready) {
    server::AddEvent(&record, Reason::kNodeBack, "connected again", now);
  }
  if (!was_ready) record.state_time = now;
  // A GPU that was missing for a while keeps its fault. A boot resets faults.
  std::vector<Gpu> known = old.gpus;
  known.insert(known.end(), record.missing_gpus.begin(),
               record.missing_gpus.end());
  known.insert(known.end(), record.withheld_gpus.begin(),
               record.withheld_gpus.end());
  CompareGpus(old.gpus, &record, now);
  KeepFaults(known, old.boot_id != info.boot_id, &record.info.gpus);
  LimitToApproved(it == members_.end() ? nullptr : &it->second,
                  options_.node_limit, &record, now);
  return record;
}

Status Membership::Register(const NodeInfo& info, Time now,
                            std::vector<GpuReclaim> reclaims) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRegister(info));
  Apply(Registered(info, now.wall));
  Member& member = members_[info.name];
  member.state = NodeState::kReady;
  member.silent_with_tasks = false;
  member.message = member.quarantine;
  member.readings.reclaims = std::move(reclaims);
  member.last_beat = now.mono;
  member.last_beat_wall = now.wall;
  member.last_evidence = now.mono;
  return OkStatus();
}

bool Membership::Contest(const NodeInfo& other, Time now, bool proven) {
  const auto it = members_.find(other.name);
  if (it == members_.end()) return false;
  Member& member = it->second;
  member.contests.push_back(now.mono);
  while (now.mono - member.contests.front() > options_.contest_window) {
    member.contests.pop_front();
  }
  if (member.contests.size() > 16) member.contests.pop_front();
  if (!member.quarantine.empty()) return false;
  if (!proven && member.contests.size() < 2) return false;
  member.quarantine = fmt::format(
      "two daemons claim the name {}, {} and {}: is the directory of one a "
      "copy of the other's? No new work until only one has been seen for {}",
      other.name, Claimant(member.info), Claimant(other),
      FormatDuration(options_.contest_window));
  member.message = member.quarantine;
  member.state_time = now.wall;
  AddEvent(&member, Reason::kNodeQuarantined, member.quarantine, now.wall);
  return true;
}

void Membership::Note(const NodeName& node, Reason reason, std::string message,
                      WallTime now) {
  const auto it = members_.find(node);
  if (it != members_.end()) {
    AddEvent(&it->second, reason, std::move(message), now);
  }
}

void Membership::EndQuarantine(const NodeName& node) {
  const auto it = members_.find(node);
  if (it != members_.end()) it->second.EndQuarantine();
}

void Member::EndQuarantine() {
  if (message == quarantine) message.clear();
  quarantine.clear();
  contests.clear();
}

Status Membership::Beat(const NodeName& node, const Incarnation& incarnation,
                        NodeReadings readings, Time now) {
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
  if (member.state != NodeState::kReady) {
    Enter(&member, NodeState::kReady, Reason::kNodeBack,
          fmt::format("reported again after {}",
                      FormatDuration(now.mono - member.last_beat)),
          now.wall);
    member.message = member.quarantine;
  }
  member.silent_with_tasks = false;
  member.last_beat = now.mono;
  member.last_beat_wall = now.wall;
  if (readings.send_time) member.clock.Take(*readings.send_time, now);
  TakeGpuReadings(&member, readings, &judge_, now);
  member.readings = std::move(readings);
  return OkStatus();
}

std::set<NodeName> Membership::NoteRun(const std::vector<GpuRef>& gpus,
                                       const std::set<GpuRef>& died,
                                       const std::string& uid, Time now) {
  std::vector<std::string> uuids;
  std::set<std::string> died_uuids;
  for (const GpuRef& ref : gpus) {
    const Gpu* const gpu = FindGpu(*this, ref);
    if (gpu == nullptr) continue;
    uuids.push_back(gpu->uuid);
    if (died.contains(ref)) died_uuids.insert(gpu->uuid);
  }
  judge_.NoteRun(uuids, died_uuids, uid);
  std::set<NodeName> changed;
  for (const GpuRef& ref : died) {
    const Gpu* const gpu = FindGpu(*this, ref);
    if (gpu == nullptr || !gpu->fault.empty()) continue;
    const auto verdict = judge_.JudgeRuns(gpu->uuid, now);
    if (!verdict) continue;
    SetFault(&members_.at(ref.first), ref.second, *verdict,
             Reason::kNodeGpuWithheld, now);
    changed.insert(ref.first);
  }
  return changed;
}

void Membership::LiftFaults(const NodeName& node,
                            const std::vector<int32_t>& gpus) {
  const Member* const member = Find(node);
  if (member == nullptr) return;
  for (const Gpu& gpu : member->info.gpus) {
    if (gpus.empty() ||
        std::find(gpus.begin(), gpus.end(), gpu.index) != gpus.end())
      judge_.Lift(gpu.uuid);
  }
}

void Membership::BeginCheck(const NodeName& node, const GpuCheckOrder& order,
                            bool asked, Time now) {
  const auto it = members_.find(node);
  if (it == members_.end()) return;
  server::BeginCheck(&it->second, order, asked, now);
}

std::vector<GpuCheck> Membership::EndCheck(const NodeName& node,
                                           const GpuCheckAnswer& answer,
                                           Time now) {
  const auto it = members_.find(node);
  if (it == members_.end()) return {};
  return server::EndCheck(&it->second, answer, &judge_, now);
}

void Membership::RecordLiveness(const NodeName& node, MonoTime now) {
  const auto it = members_.find(node);
  if (it != members_.end()) {
    it->second.last_evidence = std::max(it->second.last_evidence, now);
  }
}

void Membership::ExtendLeases(Duration away, MonoTime now) {
  for (auto& [name, member] : members_) {
    member.last_beat = std::min(now, member.last_beat + away);
    member.last_evidence = std::min(now, member.last_evidence + away);
  }
}

void Membership::Disconnect(const NodeName& node,
                            const Incarnation& incarnation, Time now) {
  const auto it = members_.find(node);
  if (it == members_.end() || !(it->second.info.incarnation == incarnation)) {
    return;
  }
  if (it->second.state == NodeState::kReady) {
    Enter(&it->second, NodeState::kUnknown, Reason::kNodeSilent,
          "its daemon's connection ended", now.wall);
  }
}

void Membership::NoteTasks(const NodeName& node, bool has_tasks) {
  const auto it = members_.find(node);
  if (it == members_.end() || it->second.state == NodeState::kReady) return;
  Member& member = it->second;
  member.silent_with_tasks = member.silent_with_tasks || has_tasks;
}

const Member* Membership::Find(const NodeName& node) const {
  const auto it = members_.find(node);
  return it == members_.end() ? nullptr : &it->second;
}

std::vector<NodeName> Membership::Expire(
    Time now,
    const std::function<std::optional<Duration>(const NodeName&)>& patience) {
  std::vector<NodeName> changed;
  for (auto& [name, member] : members_) {
    const bool calm = ExpireQuarantine(options_, &member, now);
    const bool returned = ExpireFaults(&member, now);
    // Only silent nodes need it, and they are few.
    const bool silent = member.state == NodeState::kUnknown;
    if (ExpireLease(options_, &member, now,
                    silent ? patience(name) : std::nullopt) ||
        calm || returned) {
      changed.push_back(name);
    }
  }
  return changed;
}

}  // namespace lockstep::server
