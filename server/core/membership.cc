#include "server/core/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/core/job.h"

namespace lockstep::server {
namespace {

// "host-1 (10.0.0.1, start 7)".
std::string Claimant(const NodeInfo& info) {
  return fmt::format("{} ({}, start {})", info.hostname, info.address,
                     info.incarnation.counter);
}

// Interval between events for the same error of one GPU.
constexpr Duration kSameGpuError = std::chrono::minutes(10);
constexpr int kMaxGpuEventsOfBeat = 8;
constexpr size_t kMaxGpuErrorsKnown = 256;

void AddEvent(Member* member, Reason reason, std::string message,
              WallTime now) {
  ++member->news;
  NodeRecord* const record = member;
  AddEvent(record, reason, std::move(message), now);
}

std::string LabelOf(const Member& member, int32_t index) {
  for (const Gpu& gpu : member.info.gpus) {
    if (gpu.index == index) return GpuLabel(gpu);
  }
  return fmt::format("GPU {}", index);
}

bool Has(const std::vector<int32_t>& indices, int32_t index) {
  return std::find(indices.begin(), indices.end(), index) != indices.end();
}

// A fatal error: the GPU gets no new work from now on.
void SetFault(Member* member, const GpuError& error, Time now) {
  for (Gpu& gpu : member->info.gpus) {
    if (gpu.index != error.index || !gpu.fault.empty()) continue;
    gpu.fault =
        fmt::format("Xid {} at {}", error.xid, FormatWallTime(now.wall));
    AddEvent(member, Reason::kNodeGpuError,
             fmt::format("{}: Xid {} is fatal: no new work goes to it until "
                         "its host boots or the node is undrained",
                         GpuLabel(gpu), error.xid),
             now.wall);
  }
}

// Records the changes of GPUs in `readings`.
void TakeGpuNews(Member* member, const NodeReadings& readings,
                 const std::set<int32_t>& fatal_xids, Time now) {
  int left = kMaxGpuEventsOfBeat;
  const auto silent_before = SilentGpus(member->readings);
  const auto silent = SilentGpus(readings);
  const auto say = [&](const std::vector<int32_t>& these,
                       const std::vector<int32_t>& others, Reason reason,
                       const char* what) {
    for (const int32_t index : these) {
      if (Has(others, index) || left-- <= 0) continue;
      AddEvent(member, reason, LabelOf(*member, index) + what, now.wall);
    }
  };
  say(silent, silent_before, Reason::kNodeGpuLost,
      " does not answer: no new work goes to it");
  say(silent_before, silent, Reason::kNodeGpuBack, " answers again");
  // Every error is checked, however many there are.
  for (const GpuError& error : readings.gpu_errors) {
    if (fatal_xids.contains(error.xid)) SetFault(member, error, now);
  }
  for (const GpuError& error : readings.gpu_errors) {
    auto& known = member->gpu_errors;
    const std::pair key{error.index, error.xid};
    const auto said = known.find(key);
    if (said != known.end() && now.mono - said->second < kSameGpuError) {
      continue;
    }
    if (left-- <= 0) break;
    if (known.size() >= kMaxGpuErrorsKnown) known.clear();
    known[key] = now.mono;
    AddEvent(member, Reason::kNodeGpuError,
             fmt::format("{}: the driver reported Xid {}",
                         LabelOf(*member, error.index), error.xid),
             now.wall);
  }
}

void Enter(Member* member, NodeState state, Reason reason, std::string message,
           WallTime now) {
  AddEvent(member, reason, message, now);
  member->state = state;
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

}  // namespace

NodeState Member::Shown(bool busy) const {
  if (state != NodeState::kReady) {
    return drain && !busy && !silent_with_tasks ? NodeState::kDrained : state;
  }
  if (!quarantine.empty()) return NodeState::kQuarantined;
  if (drain) return busy ? NodeState::kDraining : NodeState::kDrained;
  return state;
}

size_t Member::LostGpus() const {
  return missing_gpus.size() + BadGpus().size();
}

std::vector<int32_t> Member::BadGpus() const {
  std::vector<int32_t> bad;
  if (info.gpus.empty()) return bad;
  const std::vector<int32_t> silent = SilentGpus(readings);
  for (const Gpu& gpu : info.gpus) {
    if (!gpu.fault.empty() || Has(silent, gpu.index)) bad.push_back(gpu.index);
  }
  return bad;
}

std::string Member::GpuTrouble(const Gpu& gpu) const {
  if (!gpu.fault.empty()) return gpu.fault;
  return Has(SilentGpus(readings), gpu.index) ? "its driver does not answer"
                                              : "";
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
    if (now < newcomer.deadline) return Judgement::kOpen;
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
  std::vector<Gpu> known;
  if (old.boot_id == info.boot_id) {
    known = old.gpus;
    known.insert(known.end(), record.missing_gpus.begin(),
                 record.missing_gpus.end());
    known.insert(known.end(), record.withheld_gpus.begin(),
                 record.withheld_gpus.end());
  }
  CompareGpus(old.gpus, &record, now);
  KeepFaults(known, &record.info.gpus);
  LimitToApproved(it == members_.end() ? nullptr : &it->second,
                  options_.node_limit, &record, now);
  return record;
}

Status Membership::Register(const NodeInfo& info, Time now) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRegister(info));
  Apply(Registered(info, now.wall));
  Member& member = members_[info.name];
  member.state = NodeState::kReady;
  member.silent_with_tasks = false;
  member.message = member.quarantine;
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
  TakeGpuNews(&member, readings, options_.fatal_xids, now);
  member.readings = std::move(readings);
  return OkStatus();
}

void Membership::RecordLiveness(const NodeName& node, MonoTime now) {
  const auto it = members_.find(node);
  if (it != members_.end()) {
    it->second.last_evidence = std::max(it->second.last_evidence, now);
  }
}

void Membership::NoteUnreachable(const NodeName& node,
                                 const std::string& neighbours, WallTime now) {
  const auto it = members_.find(node);
  if (it == members_.end()) return;
  AddEvent(&it->second, Reason::kNodeUnreachable,
           "silent, and not reached by " + neighbours, now);
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
    // Only silent nodes need it, and they are few.
    const bool silent = member.state == NodeState::kUnknown;
    if (ExpireLease(options_, &member, now,
                    silent ? patience(name) : std::nullopt) ||
        calm) {
      changed.push_back(name);
    }
  }
  return changed;
}

}  // namespace lockstep::server
