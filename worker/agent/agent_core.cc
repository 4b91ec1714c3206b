#include "worker/agent/agent_core.h"

#include <algorithm>
#include <utility>

#include "common/base/host_port.h"

namespace lockstep {
namespace {

bool IsOver(GangPhase phase) {
  return phase == GangPhase::kRefused || phase == GangPhase::kStopped;
}

GangStatus FreshStatus(const Assignment& assignment, GangPhase phase) {
  GangStatus status;
  status.job = assignment.job;
  status.job_uid = assignment.job_uid;
  status.generation = assignment.generation;
  status.phase = phase;
  if (assignment.spec) {
    for (const LocalTask& task : assignment.spec->tasks) {
      for (const RankSpec& rank : task.ranks) {
        RankStatus known;
        known.rank = rank.rank;
        known.local_rank = rank.local_rank;
        known.restarts = task.restarts;
        status.ranks.push_back(known);
      }
    }
  }
  return status;
}

std::vector<ImageContent> SettledIn(const Assignment& assignment) {
  return assignment.spec ? assignment.spec->images
                         : std::vector<ImageContent>();
}

// What is here is what was settled, as far as that was.
bool AllAre(const std::vector<ImageContent>& here,
            const std::vector<ImageContent>& settled) {
  return std::all_of(
      settled.begin(), settled.end(), [&](const ImageContent& wanted) {
        return std::all_of(here.begin(), here.end(),
                           [&](const ImageContent& content) {
                             return content.image != wanted.image ||
                                    IsSameContent(content, wanted);
                           });
      });
}

// The spec names an identity that was not seen here.
bool MustCheckOutput(const Assignment& assignment, const GangStatus& status) {
  return assignment.spec && !assignment.spec->output_directory.empty() &&
         !assignment.spec->output_identity.empty() &&
         assignment.spec->output_identity != status.output_identity;
}

}  // namespace

Action MakeAction(Action::Kind kind, const GangKey& key, int32_t rank) {
  Action action;
  action.kind = kind;
  action.gang = key;
  action.rank = rank;
  return action;
}

std::string Describe(const GangKey& key) {
  return fmt::format("job {} g{}", key.job, key.generation);
}

const LocalTask* TaskOf(const GangSpec& spec, int32_t rank) {
  for (const LocalTask& task : spec.tasks) {
    for (const RankSpec& other : task.ranks) {
      if (other.rank == rank) return &task;
    }
  }
  return nullptr;
}

void AgentCore::Adopt(const Assignment& assignment, GangStatus status) {
  const GangKey key{assignment.job, assignment.generation};
  Gang& gang = gangs_[key];
  gang.assignment = assignment;
  gang.prepare_asked = true;
  for (const RankEvent& event : status.events) {
    gang.last_event = std::max(gang.last_event, event.number);
  }
  gang.status = std::move(status);
}

const AgentCore::Gang* AgentCore::Find(const GangKey& key) const {
  const auto it = gangs_.find(key);
  return it == gangs_.end() ? nullptr : &it->second;
}

Status AgentCore::OnAssignment(const Assignment& assignment, Time now,
                               Actions* out) {
  if (assignment.epoch < epoch_) {
    return Aborted(
        "{} g{}: an order of the coordinator of epoch {} came after "
        "one of epoch {}",
        assignment.job, assignment.generation, assignment.epoch, epoch_);
  }
  epoch_ = assignment.epoch;
  const GangKey key{assignment.job, assignment.generation};
  if (assignment.goal < Goal::kStop) {
    const auto above = gangs_.upper_bound(key);
    if (above != gangs_.end() && above->first.job == key.job) {
      return FailedPrecondition("{}: generation {} is here already",
                                Describe(key), above->first.generation);
    }
    for (auto& [other, gang] : gangs_) {
      if (other.job != key.job || other.generation >= key.generation) continue;
      Stop(other, &gang, options_.implied_grace,
           fmt::format("generation {} takes its place", key.generation), now,
           out);
    }
  }
  Raise(key, assignment, now, out);
  return OkStatus();
}

void AgentCore::StartFresh(const GangKey& key, const Assignment& assignment,
                           Actions* out) {
  Gang gang;
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
          fmt::format("node {} does not remember to have prepared for this "
                      "generation",
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
  Gang* gang = &it->second;
  if (assignment.goal == Goal::kForget) {
    if (IsOver(gang->status.phase)) {
      gangs_.erase(it);
      out->push_back(MakeAction(Action::Kind::kForget, key));
      return;
    }
    gang->forget_when_over = true;
    Stop(key, gang, options_.implied_grace, "the job is forgotten", now, out);
    ForgetIfAsked(key, out);
    return;
  }
  if (assignment.goal < gang->assignment.goal) return;
  if (assignment.goal == Goal::kStop) {
    Stop(key, gang, assignment.grace, assignment.stop_message, now, out);
    return;
  }
  if (gang->status.phase == GangPhase::kRefused) return;
  // From here on spec, cluster and key of the higher goal count; of the spec of
  // a generation only `restarts` of tasks changes, and more images are settled.
  gang->assignment = assignment;
  if (assignment.goal == Goal::kPrepare &&
      gang->status.phase == GangPhase::kPrepared &&
      !AllAre(gang->status.images, SettledIn(assignment))) {
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
    RestartTasks(key, gang, out);
  }
  if (assignment.goal == Goal::kGo) Go(key, gang, out);
}

Status AgentCore::CheckPorts(const Gang& gang) const {
  std::vector<int32_t> ports;
  for (const TaskSpec& task : gang.assignment.cluster->tasks) {
    if (task.node != options_.node) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort address,
                              ParseHostPort(task.address));
    ports.push_back(address.port);
  }
  if (ports != gang.status.ports) {
    return FailedPrecondition(
        "the cluster spec names other ports than node {} has leased",
        options_.node);
  }
  return OkStatus();
}

void AgentCore::Launch(const GangKey& key, Gang* gang, Actions* out) {
  if (gang->status.phase >= GangPhase::kLaunched) return;
  if (const Status status = CheckPorts(*gang); !status.ok()) {
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

void AgentCore::RestartTasks(const GangKey& key, Gang* gang, Actions* out) {
  if ((gang->status.phase != GangPhase::kLaunched &&
       gang->status.phase != GangPhase::kStopped) ||
      gang->assignment.goal >= Goal::kStop || !gang->assignment.spec ||
      gang->assignment.spec->kind != JobKind::kProgram) {
    return;
  }
  for (const LocalTask& task : gang->assignment.spec->tasks) {
    std::vector<RankStatus*> ranks;
    bool ended = true;
    for (const RankSpec& spec : task.ranks) {
      Gang* found = nullptr;
      RankStatus* rank = FindRank(key, spec.rank, &found);
      if (rank == nullptr || rank->restarts >= task.restarts) continue;
      ranks.push_back(rank);
      ended = ended && rank->state == RankState::kExited;
    }
    for (RankStatus* rank : ranks) {
      if (ended) {
        gang->words.erase(rank->rank);
        rank->restarts = task.restarts;
        rank->state = RankState::kPrepared;
        rank->pid = 0;
        rank->exit.reset();
        rank->progress = RankProgress();
        rank->usage = Usage();
        out->push_back(MakeAction(Action::Kind::kStartRank, key, rank->rank));
      } else if (rank->state != RankState::kExited) {
        Action kill = MakeAction(Action::Kind::kKillTree, key, rank->rank);
        kill.grace = options_.implied_grace;
        out->push_back(std::move(kill));
      }
    }
    if (ranks.empty() || !ended) continue;
    gang->status.phase = GangPhase::kLaunched;
    out->push_back(MakeAction(Action::Kind::kReport, key));
  }
}

void AgentCore::Go(const GangKey& key, Gang* gang, Actions* out) {
  if (gang->status.phase != GangPhase::kLaunched) return;
  for (const RankStatus& rank : gang->status.ranks) {
    if (rank.state != RankState::kJoined) continue;
    // The link takes repeats: Go is level-triggered too.
    out->push_back(MakeAction(Action::Kind::kGo, key, rank.rank));
    if (rank.rank != 0) continue;  // Rank 0 speaks for all.
    for (const Directive& directive : gang->assignment.directives) {
      if (directive.id <= gang->last_directive) continue;
      gang->last_directive = directive.id;
      Action action = MakeAction(Action::Kind::kDirective, key, rank.rank);
      action.directive = directive;
      out->push_back(std::move(action));
    }
  }
}

void AgentCore::Stop(const GangKey& key, Gang* gang, Duration grace,
                     const std::string& message, Time now, Actions* out) {
  if (IsOver(gang->status.phase)) return;
  const bool first = gang->assignment.goal < Goal::kStop;
  const MonoTime kill_at = now.mono + grace + options_.force_after;
  if (!first && gang->kill_at && kill_at >= *gang->kill_at) return;
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
  gang->kill_at = kill_at;
  for (const RankStatus& rank : gang->status.ranks) {
    if (rank.state == RankState::kExited) continue;
    if (first) {
      Action abort = MakeAction(Action::Kind::kAbort, key, rank.rank);
      abort.message = message;
      out->push_back(std::move(abort));
    }
    Action kill = MakeAction(Action::Kind::kKillTree, key, rank.rank);
    kill.grace = grace;
    out->push_back(std::move(kill));
  }
  if (gang->status.phase != GangPhase::kStopping) {
    gang->status.phase = GangPhase::kStopping;
    out->push_back(MakeAction(Action::Kind::kReport, key));
  }
  EndIfOver(key, gang, out);
}

void AgentCore::EndIfOver(const GangKey& key, Gang* gang, Actions* out) {
  if (gang->status.phase != GangPhase::kLaunched &&
      gang->status.phase != GangPhase::kStopping) {
    return;
  }
  const bool over = std::all_of(
      gang->status.ranks.begin(), gang->status.ranks.end(),
      [](const RankStatus& rank) { return rank.state == RankState::kExited; });
  if (over) Over(key, gang, GangPhase::kStopped, out);
}

void AgentCore::Over(const GangKey& key, Gang* gang, GangPhase phase,
                     Actions* out) {
  gang->status.phase = phase;
  gang->kill_at.reset();
  out->push_back(MakeAction(Action::Kind::kRelease, key));
  out->push_back(MakeAction(Action::Kind::kReport, key));
  PrepareWaiting(key.job, out);
}

bool AgentCore::LowerOnesAreOver(const GangKey& key) const {
  return std::all_of(gangs_.begin(), gangs_.end(), [&](const auto& entry) {
    return entry.first.job != key.job ||
           entry.first.generation >= key.generation ||
           IsOver(entry.second.status.phase);
  });
}

void AgentCore::PrepareWaiting(const JobName& job, Actions* out) {
  for (auto& [key, gang] : gangs_) {
    if (key.job != job || gang.prepare_asked ||
        gang.status.phase != GangPhase::kPreparing || !LowerOnesAreOver(key)) {
      continue;
    }
    gang.prepare_asked = true;
    gang.prepared_with = SettledIn(gang.assignment);
    out->push_back(MakeAction(Action::Kind::kPrepare, key));
  }
}

void AgentCore::PrepareAgain(const GangKey& key, Gang* gang, Actions* out) {
  gang->status.phase = GangPhase::kPreparing;
  gang->status.ports.clear();
  gang->status.master_port = 0;
  gang->status.service_ports.clear();
  gang->status.images.clear();
  gang->status.output_identity.clear();
  gang->prepare_asked = false;
  out->push_back(MakeAction(Action::Kind::kRelease, key));
  out->push_back(MakeAction(Action::Kind::kReport, key));
  PrepareWaiting(key.job, out);
}

void AgentCore::CheckOutput(const GangKey& key, Gang* gang, Actions* out) {
  gang->status.phase = GangPhase::kPreparing;
  out->push_back(MakeAction(Action::Kind::kCheckOutput, key));
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

void AgentCore::EndPreparing(const GangKey& key, Gang* gang, Actions* out) {
  const std::vector<ImageContent> settled = SettledIn(gang->assignment);
  if (settled != gang->prepared_with && !AllAre(gang->status.images, settled)) {
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
    // Stopped meanwhile: nobody wants what was leased.
    out->push_back(MakeAction(Action::Kind::kRelease, key));
    return;
  }
  Gang& gang = it->second;
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

void AgentCore::ForgetIfAsked(const GangKey& key, Actions* out) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end() || !it->second.forget_when_over ||
      !IsOver(it->second.status.phase)) {
    return;
  }
  gangs_.erase(it);
  out->push_back(MakeAction(Action::Kind::kForget, key));
}

void AgentCore::OnTick(Time now, Actions* out) {
  for (auto& [key, gang] : gangs_) {
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
    if (gang.kill_at && (!next || *gang.kill_at < *next)) next = gang.kill_at;
  }
  return next;
}

}  // namespace lockstep
