#include "worker/agent/core/agent_core.h"

#include <algorithm>
#include <utility>

namespace lockstep::worker::agent {
namespace {

bool LowerOnesAreOver(const std::map<GangKey, LocalGang>& gangs,
                      const GangKey& key) {
  return std::all_of(gangs.begin(), gangs.end(), [&](const auto& entry) {
    return entry.first.job != key.job ||
           entry.first.generation >= key.generation ||
           IsOver(entry.second.status.phase);
  });
}

void ForgetIfAsked(const GangKey& key, std::map<GangKey, LocalGang>* gangs,
                   Actions* out) {
  const auto it = gangs->find(key);
  if (it == gangs->end() || !it->second.forget_when_over ||
      !IsOver(it->second.status.phase)) {
    return;
  }
  gangs->erase(it);
  out->push_back(MakeAction(Action::Kind::kForget, key));
}

void CheckOutput(const GangKey& key, LocalGang* gang, Actions* out) {
  gang->status.phase = GangPhase::kPreparing;
  out->push_back(MakeAction(Action::Kind::kCheckOutput, key));
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

}  // namespace

void AgentCore::Adopt(const Assignment& assignment, GangStatus status) {
  const GangKey key{assignment.job, assignment.generation};
  LocalGang& gang = gangs_[key];
  gang.assignment = assignment;
  gang.prepare_asked = true;
  for (const RankEvent& event : status.events) {
    gang.last_event = std::max(gang.last_event, event.number);
  }
  gang.status = std::move(status);
}

const LocalGang* AgentCore::Find(const GangKey& key) const {
  const auto it = gangs_.find(key);
  return it == gangs_.end() ? nullptr : &it->second;
}

Status AgentCore::OnAssignment(const Assignment& assignment, Time now,
                               Actions* out) {
  if (assignment.epoch < epoch_) {
    return Aborted("{} g{}: an order of epoch {} arrived after one of epoch {}",
                   assignment.job, assignment.generation, assignment.epoch,
                   epoch_);
  }
  epoch_ = assignment.epoch;
  const GangKey key{assignment.job, assignment.generation};
  if (assignment.goal < Goal::kStop) {
    const auto above = gangs_.upper_bound(key);
    if (above != gangs_.end() && above->first.job == key.job) {
      return FailedPrecondition("{}: the newer generation {} is already here",
                                Describe(key), above->first.generation);
    }
    for (auto& [other, gang] : gangs_) {
      if (other.job != key.job || other.generation >= key.generation) continue;
      Stop(other, &gang, options_.implied_grace,
           fmt::format("generation {} replaces it", key.generation), now, out);
    }
  }
  Raise(key, assignment, now, out);
  return OkStatus();
}

void AgentCore::StartFresh(const GangKey& key, const Assignment& assignment,
                           Actions* out) {
  LocalGang gang;
  gang.assignment = assignment;
  switch (assignment.goal) {
    case Goal::kForget:
      out->push_back(MakeAction(Action::Kind::kForget, key));
      return;
    case Goal::kStop:
      gang.status = FreshStatus(assignment, GangPhase::kStopped);
      gang.status.ranks.clear();
      break;
    case Goal::kLaunch:
    case Goal::kGo:
      gang.status = FreshStatus(assignment, GangPhase::kRefused);
      gang.status.refusal = {
          Reason::kNodeLost,
          fmt::format("node {} has no record of preparing this generation",
                      options_.node)};
      break;
    case Goal::kPrepare:
      gang.status = FreshStatus(assignment, GangPhase::kPreparing);
      break;
  }
  gangs_[key] = std::move(gang);
  out->push_back(MakeAction(Action::Kind::kReport, key));
  PrepareWaiting(key.job, out);
}

void AgentCore::Raise(const GangKey& key, const Assignment& assignment,
                      Time now, Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) {
    StartFresh(key, assignment, out);
    return;
  }
  LocalGang* gang = &it->second;
  if (assignment.goal == Goal::kForget) {
    if (IsOver(gang->status.phase)) {
      gangs_.erase(it);
      out->push_back(MakeAction(Action::Kind::kForget, key));
      return;
    }
    gang->forget_when_over = true;
    Stop(key, gang, options_.implied_grace,
         "the coordinator has removed the job", now, out);
    ForgetIfAsked(key, &gangs_, out);
    return;
  }
  if (assignment.goal < gang->assignment.goal) return;
  if (assignment.goal == Goal::kStop) {
    if (gang->assignment.goal < Goal::kStop) {
      gang->assignment.keep_evidence = assignment.keep_evidence;
    }
    Stop(key, gang, assignment.grace, assignment.stop_message, now, out);
    return;
  }
  if (gang->status.phase == GangPhase::kRefused) return;
  // From here on spec, cluster and key of the higher goal count; of the spec of
  // a generation only `restarts` and the reduction plan change, and more images
  // are settled. The tasks of a spare node change until it is launched.
  gang->assignment = assignment;
  if (assignment.goal == Goal::kPrepare &&
      gang->status.phase == GangPhase::kPrepared &&
      (!AreSettled(gang->status.images, SettledImages(assignment)) ||
       IsForOtherRanks(*gang))) {
    PrepareAgain(key, gang, out);
    return;
  }
  if (assignment.goal == Goal::kPrepare &&
      gang->status.phase == GangPhase::kPrepared &&
      MustCheckOutput(assignment, gang->status)) {
    CheckOutput(key, gang, out);
    return;
  }
  if (assignment.goal >= Goal::kLaunch) {
    Launch(key, gang, out);
    Restart(key, options_.implied_grace, gang, out);
  }
  if (assignment.goal == Goal::kGo) {
    RecoverIfAsked(key, gang, out);
    Go(key, gang, out);
    CaptureIfAsked(key, gang, out);
  }
}

void AgentCore::Launch(const GangKey& key, LocalGang* gang, Actions* out) {
  if (gang->status.phase >= GangPhase::kLaunched) return;
  if (const Status status = CheckPorts(*gang, options_.node); !status.ok()) {
    gang->status.refusal = {Reason::kNodeLost, Message(status)};
    Over(key, gang, GangPhase::kRefused, out);
    return;
  }
  gang->status.phase = GangPhase::kLaunched;
  const GangStatus fresh = FreshStatus(gang->assignment, GangPhase::kLaunched);
  for (RankStatus& rank : gang->status.ranks) {
    for (const RankStatus& known : fresh.ranks) {
      if (known.rank == rank.rank) rank.restarts = known.restarts;
    }
    out->push_back(MakeAction(Action::Kind::kStartRank, key, rank.rank));
  }
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

void AgentCore::Stop(const GangKey& key, LocalGang* gang, Duration grace,
                     const std::string& message, Time now, Actions* out) {
  if (IsOver(gang->status.phase)) return;
  const bool first = gang->assignment.goal < Goal::kStop;
  const MonoTime kill_at = now.mono + grace + options_.force_after;
  if (!first && gang->kill_at && kill_at >= *gang->kill_at) return;
  if (gang->keep_until && grace >= gang->assignment.grace) return;
  gang->assignment.goal = Goal::kStop;
  gang->assignment.grace = grace;
  if (first) {
    gang->assignment.stop_message = message;
    gang->stopped_at = now.wall;
  }
  if (gang->status.phase < GangPhase::kLaunched) {
    Over(key, gang, GangPhase::kStopped, out);
    return;
  }
  if (first && gang->assignment.keep_evidence && !HasEnded(*gang)) {
    KeepEvidence(key, gang, out);
    if (gang->keeping) gang->keep_until = now.mono + options_.keep_time;
  }
  if (!first && gang->keep_until) {
    SendStop(key, gang, /*abort=*/true, options_.force_after, now, out);
  } else if (!gang->keep_until) {
    SendStop(key, gang, first, options_.force_after, now, out);
  }
  if (gang->status.phase != GangPhase::kStopping) {
    gang->status.phase = GangPhase::kStopping;
    out->push_back(MakeAction(Action::Kind::kReport, key));
  }
  if (HasEnded(*gang)) Over(key, gang, GangPhase::kStopped, out);
}

void AgentCore::Over(const GangKey& key, LocalGang* gang, GangPhase phase,
                     Actions* out) {
  gang->status.phase = phase;
  gang->kill_at.reset();
  gang->keep_until.reset();
  out->push_back(MakeAction(Action::Kind::kRelease, key));
  out->push_back(MakeAction(Action::Kind::kReport, key));
  PrepareWaiting(key.job, out);
}

void AgentCore::PrepareWaiting(const JobName& job, Actions* out) {
  for (auto& [key, gang] : gangs_) {
    if (key.job != job || gang.prepare_asked ||
        gang.status.phase != GangPhase::kPreparing ||
        !LowerOnesAreOver(gangs_, key)) {
      continue;
    }
    gang.prepare_asked = true;
    gang.prepared_with = SettledImages(gang.assignment);
    out->push_back(MakeAction(Action::Kind::kPrepare, key));
  }
}

void AgentCore::PrepareAgain(const GangKey& key, LocalGang* gang,
                             Actions* out) {
  gang->status.phase = GangPhase::kPreparing;
  gang->status.ports.clear();
  gang->status.master_port = 0;
  gang->status.service_ports.clear();
  gang->status.images.clear();
  gang->status.output_identity.clear();
  gang->status.ranks = FreshStatus(gang->assignment, gang->status.phase).ranks;
  gang->prepare_asked = false;
  out->push_back(MakeAction(Action::Kind::kRelease, key));
  out->push_back(MakeAction(Action::Kind::kReport, key));
  PrepareWaiting(key.job, out);
}

void AgentCore::EndPreparing(const GangKey& key, LocalGang* gang,
                             Actions* out) {
  const std::vector<ImageContent> settled = SettledImages(gang->assignment);
  if (IsForOtherRanks(*gang) || (settled != gang->prepared_with &&
                                 !AreSettled(gang->status.images, settled))) {
    PrepareAgain(key, gang, out);
    return;
  }
  if (MustCheckOutput(gang->assignment, gang->status)) {
    CheckOutput(key, gang, out);
    return;
  }
  gang->status.phase = GangPhase::kPrepared;
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

void AgentCore::OnPrepared(const GangKey& key, PreparedGang prepared, Time now,
                           Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end() || it->second.status.phase != GangPhase::kPreparing) {
    // It was stopped meanwhile, so its leases are not needed.
    out->push_back(MakeAction(Action::Kind::kRelease, key));
    return;
  }
  LocalGang& gang = it->second;
  gang.status.ports = std::move(prepared.ports);
  gang.status.master_port = prepared.master_port;
  gang.status.service_ports = std::move(prepared.service_ports);
  gang.status.images = std::move(prepared.images);
  const int32_t rank =
      gang.status.ranks.empty() ? 0 : gang.status.ranks.front().rank;
  for (std::string& note : prepared.notes) {
    const auto& said = gang.status.events;
    if (std::any_of(said.begin(), said.end(), [&](const RankEvent& event) {
          return event.message == note;
        })) {
      continue;
    }
    gang.status.events.push_back({++gang.last_event, rank, now.wall,
                                  Reason::kPrepareNote, std::move(note)});
  }
  gang.status.output_identity = std::move(prepared.output_identity);
  EndPreparing(key, &gang, out);
}

void AgentCore::OnOutputChecked(const GangKey& key, std::string identity,
                                Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end() || it->second.status.phase != GangPhase::kPreparing) {
    return;  // Stopped meanwhile, and released.
  }
  it->second.status.output_identity = std::move(identity);
  EndPreparing(key, &it->second, out);
}

void AgentCore::OnRefused(const GangKey& key, Cause cause, Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end() || it->second.status.phase != GangPhase::kPreparing) {
    return;
  }
  it->second.status.refusal = std::move(cause);
  Over(key, &it->second, GangPhase::kRefused, out);
}

void AgentCore::OnCaptured(const GangKey& key, uint32_t evidence, Time now,
                           Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  LocalGang* const gang = &it->second;
  if (evidence == 0) {
    gang->keeping = false;
    if (gang->keep_until)
      SendStop(key, gang, /*abort=*/true, options_.force_after, now, out);
  } else if (gang->status.evidence_done < evidence) {
    gang->status.evidence_done = evidence;
    out->push_back(MakeAction(Action::Kind::kReport, key));
  }
}

void AgentCore::OnRankStarted(const GangKey& key, int32_t rank, int64_t pid,
                              Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  RankStatus* status = FindRank(&it->second, rank);
  if (status == nullptr || status->state >= RankState::kStarted) return;
  status->state = RankState::kStarted;
  status->pid = pid;
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

void AgentCore::OnRankJoined(const GangKey& key, int32_t rank,
                             const RankJoin& join, Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  LocalGang* gang = &it->second;
  RankStatus* status = FindRank(gang, rank);
  if (status == nullptr || status->state == RankState::kExited) return;
  const RankStatus before = *status;
  // A program forms by itself, and its ranks stay STARTED.
  if (IsNative(gang->assignment)) status->state = RankState::kJoined;
  status->recoverable = status->recoverable || join.recoverable;
  status->elastic = status->elastic || join.elastic;
  status->recovery = std::max(status->recovery, join.recovery);
  if (*status == before) return;
  out->push_back(MakeAction(Action::Kind::kReport, key));
  if (gang->assignment.goal == Goal::kGo) Go(key, gang, out);
}

void AgentCore::OnRankNews(const GangKey& key, int32_t rank,
                           const RankNews& news, Time now, Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end() || FindRank(it->second, rank) == nullptr) return;
  if (TakeNews(rank, news, now, &it->second)) {
    out->push_back(MakeAction(Action::Kind::kReport, key));
  }
}

void AgentCore::OnRankExited(const GangKey& key, int32_t rank, ExitStatus exit,
                             const RankProgress& progress, const Usage& usage,
                             Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  LocalGang* gang = &it->second;
  RankStatus* status = FindRank(gang, rank);
  if (status == nullptr || status->state == RankState::kExited) return;
  JudgeExit(rank, *gang, &exit);
  status->state = RankState::kExited;
  status->exit = std::move(exit);
  status->progress = progress;
  status->usage = usage;
  out->push_back(MakeAction(Action::Kind::kReport, key));
  // Before others hear of it, and end. One that is being replaced was given up
  // with its evidence.
  if (gang->assignment.goal < Goal::kStop && !status->exit->ok() &&
      !status->exit->victim && !MustRestart(*gang, *status)) {
    KeepEvidence(key, gang, out);
  }
  Restart(key, options_.implied_grace, gang, out);
  if (HasEnded(*gang)) Over(key, gang, GangPhase::kStopped, out);
  ForgetIfAsked(key, &gangs_, out);
}

void AgentCore::OnTick(Time now, Actions* out) {
  for (auto& [key, gang] : gangs_) {
    if (gang.keep_until && *gang.keep_until <= now.mono) {
      SendStop(key, &gang, /*abort=*/true, options_.force_after, now, out);
    }
    if (!gang.kill_at || *gang.kill_at > now.mono) continue;
    gang.kill_at = now.mono + options_.force_after;
    for (const RankStatus& rank : gang.status.ranks) {
      if (rank.state == RankState::kExited) continue;
      out->push_back(MakeAction(Action::Kind::kKillTree, key, rank.rank));
    }
  }
}

std::optional<MonoTime> AgentCore::NextDeadline() const {
  std::optional<MonoTime> next;
  for (const auto& [key, gang] : gangs_) {
    for (const auto& at : {gang.kill_at, gang.keep_until}) {
      if (at && (!next || *at < *next)) next = at;
    }
  }
  return next;
}

}  // namespace lockstep::worker::agent
