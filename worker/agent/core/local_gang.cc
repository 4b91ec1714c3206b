#include "worker/agent/core/local_gang.h"

#include <algorithm>
#include <utility>

#include "common/base/host_port.h"
#include "common/model/away_ranks.h"

namespace lockstep::worker::agent {
namespace {

// Keeps those that are other ranks of the job.
void KeepLostPeers(int32_t rank, const RankNews& news, LocalGang* gang) {
  if (!gang->assignment.cluster) return;  // Nothing was launched.
  std::vector<LostPeer>& kept = gang->status.lost_peers;
  for (const int32_t peer : news.lost_peers) {
    if (peer < 0 || peer == rank ||
        peer >= gang->assignment.cluster->world_size ||
        kept.size() >= kKeptLostPeers) {
      continue;
    }
    const bool known =
        std::any_of(kept.begin(), kept.end(), [&](const LostPeer& other) {
          return other.rank == rank && other.peer == peer;
        });
    if (!known) kept.push_back({rank, peer, news.lost_peer_error});
  }
}

// Whether ranks are replaced one by one. Otherwise all ranks of a program's
// task restart together.
bool ReplacesRanks(const Assignment& assignment) {
  return IsNative(assignment) || assignment.recovery > 0;
}

// The number of restarts that the assignment wants of `rank`. An older
// coordinator sends the task's only.
int32_t RestartsOf(const Assignment& assignment, const LocalTask& task,
                   int32_t rank) {
  if (!ReplacesRanks(assignment)) return task.restarts;
  for (const RankSpec& spec : task.ranks) {
    if (spec.rank == rank) return spec.restarts;
  }
  return 0;
}

// REQUIRES: its process has ended.
void StartAgain(const GangKey& key, int32_t restarts, LocalGang* gang,
                RankStatus* rank, Actions* out) {
  gang->failures.erase(rank->rank);
  gang->kept = false;
  RankStatus fresh;
  fresh.rank = rank->rank;
  fresh.local_rank = rank->local_rank;
  fresh.state = RankState::kPrepared;
  fresh.restarts = restarts;
  *rank = std::move(fresh);
  // The new process knows no orders.
  if (rank->rank == gang->chief) {
    gang->last_directive = gang->status.directive_done;
  }
  out->push_back(MakeAction(Action::Kind::kStartRank, key, rank->rank));
}

// Returns whether ranks start.
bool RestartTask(const GangKey& key, const LocalTask& task, Duration grace,
                 LocalGang* gang, Actions* out) {
  std::vector<RankStatus*> ranks;
  bool ended = true;
  for (const RankSpec& spec : task.ranks) {
    RankStatus* rank = FindRank(gang, spec.rank);
    if (rank == nullptr || rank->restarts >= task.restarts) continue;
    ranks.push_back(rank);
    ended = ended && rank->state == RankState::kExited;
  }
  for (RankStatus* rank : ranks) {
    if (ended) {
      StartAgain(key, task.restarts, gang, rank, out);
    } else if (rank->state != RankState::kExited) {
      Action kill = MakeAction(Action::Kind::kKillTree, key, rank->rank);
      kill.grace = grace;
      out->push_back(std::move(kill));
    }
  }
  return ended && !ranks.empty();
}

// Returns whether ranks start.
bool ReplaceRanks(const GangKey& key, const LocalTask& task, LocalGang* gang,
                  Actions* out) {
  bool started = false;
  for (const RankSpec& spec : task.ranks) {
    RankStatus* rank = FindRank(gang, spec.rank);
    if (rank == nullptr || rank->restarts >= spec.restarts) continue;
    if (rank->state == RankState::kExited) {
      StartAgain(key, spec.restarts, gang, rank, out);
      started = true;
      continue;
    }
    // A second forced kill would end its shim before it has recorded the end.
    int32_t& killed = gang->replaced[rank->rank];
    if (killed >= spec.restarts) continue;
    killed = spec.restarts;
    out->push_back(MakeAction(Action::Kind::kKillTree, key, rank->rank));
  }
  return started;
}

}  // namespace

Action MakeAction(Action::Kind kind, const GangKey& key, int32_t rank) {
  Action action;
  action.kind = kind;
  action.gang = key;
  action.rank = rank;
  return action;
}

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
    status.fence = assignment.spec->fence;
    for (const LocalTask& task : assignment.spec->tasks) {
      for (const RankSpec& rank : task.ranks) {
        RankStatus known;
        known.rank = rank.rank;
        known.local_rank = rank.local_rank;
        known.restarts = RestartsOf(assignment, task, rank.rank);
        status.ranks.push_back(known);
      }
    }
  }
  return status;
}

const LocalTask* TaskOf(const GangSpec& spec, int32_t rank) {
  for (const LocalTask& task : spec.tasks) {
    for (const RankSpec& other : task.ranks) {
      if (other.rank == rank) return &task;
    }
  }
  return nullptr;
}

const RankStatus* FindRank(const LocalGang& gang, int32_t rank) {
  for (const RankStatus& status : gang.status.ranks) {
    if (status.rank == rank) return &status;
  }
  return nullptr;
}

RankStatus* FindRank(LocalGang* gang, int32_t rank) {
  return const_cast<RankStatus*>(
      FindRank(static_cast<const LocalGang&>(*gang), rank));
}

bool IsNative(const Assignment& assignment) {
  return assignment.spec && assignment.spec->kind == JobKind::kNative;
}

double CpusPerRank(const LocalTask& task) {
  return task.ranks.empty()
             ? 0
             : task.resources.cpus / static_cast<double>(task.ranks.size());
}

std::vector<int32_t> GpusOfRank(const Assignment& assignment, int32_t rank) {
  if (!assignment.cluster) return {};
  for (const TaskSpec& task : assignment.cluster->tasks) {
    for (const RankSpec& spec : task.ranks) {
      if (spec.rank == rank) return spec.gpus;
    }
  }
  return {};
}

std::vector<ImageContent> SettledImages(const Assignment& assignment) {
  return assignment.spec ? assignment.spec->images
                         : std::vector<ImageContent>();
}

bool AreSettled(const std::vector<ImageContent>& here,
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

bool IsForOtherRanks(const LocalGang& gang) {
  const GangStatus fresh = FreshStatus(gang.assignment, gang.status.phase);
  return !std::equal(fresh.ranks.begin(), fresh.ranks.end(),
                     gang.status.ranks.begin(), gang.status.ranks.end(),
                     [](const RankStatus& a, const RankStatus& b) {
                       return a.rank == b.rank;
                     });
}

bool MustCheckOutput(const Assignment& assignment, const GangStatus& status) {
  return assignment.spec && !assignment.spec->output_directory.empty() &&
         !assignment.spec->output_identity.empty() &&
         assignment.spec->output_identity != status.output_identity;
}

Status CheckPorts(const LocalGang& gang, const NodeName& node) {
  std::vector<int32_t> ports;
  for (const TaskSpec& task : gang.assignment.cluster->tasks) {
    if (task.node != node) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort address,
                              ParseHostPort(task.address));
    ports.push_back(address.port);
  }
  if (ports != gang.status.ports) {
    return FailedPrecondition(
        "the ports in the cluster spec differ from those that node {} has "
        "leased",
        node);
  }
  return OkStatus();
}

bool HasEnded(const LocalGang& gang) {
  return (gang.status.phase == GangPhase::kLaunched ||
          gang.status.phase == GangPhase::kStopping) &&
         std::all_of(gang.status.ranks.begin(), gang.status.ranks.end(),
                     [](const RankStatus& rank) {
                       return rank.state == RankState::kExited;
                     });
}

bool MustRestart(const LocalGang& gang, const RankStatus& rank) {
  if (!gang.assignment.spec) return false;
  const LocalTask* task = TaskOf(*gang.assignment.spec, rank.rank);
  return task != nullptr &&
         rank.restarts < RestartsOf(gang.assignment, *task, rank.rank);
}

void Restart(const GangKey& key, Duration grace, LocalGang* gang,
             Actions* out) {
  if ((gang->status.phase != GangPhase::kLaunched &&
       gang->status.phase != GangPhase::kStopped) ||
      gang->assignment.goal >= Goal::kStop || !gang->assignment.spec) {
    return;
  }
  bool started = false;
  for (const LocalTask& task : gang->assignment.spec->tasks) {
    started = (ReplacesRanks(gang->assignment)
                   ? ReplaceRanks(key, task, gang, out)
                   : RestartTask(key, task, grace, gang, out)) ||
              started;
  }
  if (!started) return;
  gang->status.phase = GangPhase::kLaunched;
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

bool OthersRecover(const LocalGang& gang, int32_t rank) {
  const std::vector<int32_t>& away = gang.assignment.away_ranks;
  const auto is_away = [&](int32_t other) {
    return std::find(away.begin(), away.end(), other) != away.end();
  };
  return is_away(rank) &&
         std::any_of(gang.status.ranks.begin(), gang.status.ranks.end(),
                     [&](const RankStatus& other) {
                       return !is_away(other.rank) && !other.exit &&
                              other.recovery < gang.assignment.recovery;
                     });
}

void RecoverIfAsked(const GangKey& key, LocalGang* gang, Actions* out) {
  const uint32_t recovery = gang->assignment.recovery;
  if (gang->status.phase != GangPhase::kLaunched ||
      recovery <= gang->last_recovery) {
    return;
  }
  gang->last_recovery = recovery;
  // They were peers of a communicator that is over.
  gang->status.lost_peers.clear();
  for (const RankStatus& rank : gang->status.ranks) {
    if (rank.state == RankState::kExited || MustRestart(*gang, rank)) continue;
    out->push_back(MakeAction(Action::Kind::kRecover, key, rank.rank));
  }
}

void Go(const GangKey& key, LocalGang* gang, Actions* out) {
  if (gang->status.phase != GangPhase::kLaunched) return;
  if (const int32_t chief = ChiefWithout(gang->assignment.away_ranks);
      chief != gang->chief) {
    gang->chief = chief;
    gang->last_directive = gang->status.directive_done;
  }
  // The ranks of a program join whenever they like, and form by themselves. The
  // link keeps what is for one that has not joined.
  const bool native = IsNative(gang->assignment);
  for (const RankStatus& rank : gang->status.ranks) {
    if (rank.state != (native ? RankState::kJoined : RankState::kStarted)) {
      continue;
    }
    // The link takes repeats: Go is level-triggered too.
    if (native) out->push_back(MakeAction(Action::Kind::kGo, key, rank.rank));
    if (rank.rank != gang->chief) continue;  // It speaks for all.
    for (const Directive& directive : gang->assignment.directives) {
      if (directive.id <= gang->last_directive) continue;
      gang->last_directive = directive.id;
      Action action = MakeAction(Action::Kind::kDirective, key, rank.rank);
      action.directive = directive;
      out->push_back(std::move(action));
    }
  }
}

void SendStop(const GangKey& key, LocalGang* gang, bool abort,
              Duration force_after, Time now, Actions* out) {
  gang->keep_until.reset();
  gang->kill_at = now.mono + gang->assignment.grace + force_after;
  for (const RankStatus& rank : gang->status.ranks) {
    if (rank.state == RankState::kExited) continue;
    if (abort) {
      Action tell = MakeAction(Action::Kind::kAbort, key, rank.rank);
      tell.message = gang->assignment.stop_message;
      out->push_back(std::move(tell));
    }
    Action kill = MakeAction(Action::Kind::kKillTree, key, rank.rank);
    kill.grace = gang->assignment.grace;
    out->push_back(std::move(kill));
  }
}

void KeepEvidence(const GangKey& key, LocalGang* gang, Actions* out) {
  if (gang->kept) return;
  gang->kept = true;
  gang->keeping = true;
  out->push_back(MakeAction(Action::Kind::kCapture, key));
}

void CaptureIfAsked(const GangKey& key, LocalGang* gang, Actions* out) {
  const uint32_t evidence = gang->assignment.evidence;
  if (gang->status.phase != GangPhase::kLaunched ||
      evidence <= std::max(gang->last_evidence, gang->status.evidence_done)) {
    return;
  }
  gang->last_evidence = evidence;
  Action action = MakeAction(Action::Kind::kCapture, key);
  action.evidence = evidence;
  out->push_back(std::move(action));
}

bool TakeNews(int32_t rank, const RankNews& news, Time now, LocalGang* gang) {
  GangStatus& status = gang->status;
  const GangStatus before = status;
  if (news.checkpoint && (!status.checkpoint ||
                          news.checkpoint->step >= status.checkpoint->step)) {
    const WallTime time =
        status.checkpoint && status.checkpoint->step == news.checkpoint->step
            ? status.checkpoint->time  // A repeat.
            : now.wall;
    status.checkpoint = news.checkpoint;
    status.checkpoint->generation = status.generation;
    status.checkpoint->time = time;
  }
  if (!news.artifact_name.empty() &&
      (status.artifacts.size() < 64 ||
       status.artifacts.contains(news.artifact_name))) {
    status.artifacts[news.artifact_name] = news.artifact_path;
  }
  if (!news.event.empty()) {
    status.events.push_back(
        {++gang->last_event, rank, now.wall, news.event_reason, news.event});
    if (status.events.size() > kKeptEvents) {
      status.events.erase(status.events.begin());
    }
  }
  if (news.resumed_step) status.resumed_step = news.resumed_step;
  if (rank == 0 && !news.reduction_plan.empty()) {
    status.reduction_plan = news.reduction_plan;
  }
  status.directive_done = std::max(status.directive_done, news.directive_done);
  KeepLostPeers(rank, news, gang);
  RankStatus* known = FindRank(gang, rank);
  known->parked = std::max(known->parked, news.parked);
  LocalGang::FailureReport& words = gang->failures[rank];
  if (!news.failure.empty()) words.failure = news.failure;
  if (news.failure_reason != Reason::kNone) words.reason = news.failure_reason;
  words.victim = words.victim || news.victim;
  return status != before;
}

void JudgeExit(int32_t rank, const LocalGang& gang, ExitStatus* exit) {
  const auto said = gang.failures.find(rank);
  const LocalGang::FailureReport words =
      said == gang.failures.end() ? LocalGang::FailureReport() : said->second;
  if (!words.failure.empty()) exit->message = words.failure;
  if (words.reason != Reason::kNone) exit->reason = words.reason;
  exit->victim = exit->victim || words.victim;
  // A rank that ends after the stop request ended because of it, unless it had
  // ended before or reported an error of its own. A peer may have reported it
  // gone before its exit arrived.
  const bool own_error = !words.failure.empty() && !words.victim;
  const bool before_stop = gang.stopped_at && exit->end_time != WallTime{} &&
                           exit->end_time < *gang.stopped_at;
  if (!exit->ok() && gang.assignment.goal >= Goal::kStop && !own_error &&
      !before_stop) {
    exit->victim = true;
    const std::string& why = gang.assignment.stop_message;
    if (exit->message.empty() && !why.empty())
      exit->message = "stopped: " + why;
  }
  if (IsNative(gang.assignment) && exit->how == ExitStatus::How::kCode &&
      exit->value == kPeerLostCode) {
    exit->victim = true;
  }
}

}  // namespace lockstep::worker::agent
