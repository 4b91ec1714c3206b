// What a daemon does with the decisions of AgentCore (worker/agent/agent.cc).
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "tests/simulation/node.h"

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using worker::agent::Action;
using worker::agent::Actions;
using worker::agent::AgentCore;
using worker::agent::IsOver;
using worker::agent::LocalGang;

bool HasRank0(const LocalGang& gang) {
  return std::any_of(gang.status.ranks.begin(), gang.status.ranks.end(),
                     [](const RankStatus& rank) { return rank.rank == 0; });
}

}  // namespace

void Node::Tell(const CoreEvent& event) {
  if (!listens()) return;
  Actions actions;
  event(&daemon_->core, &actions);
  Execute(actions);
  if (listens()) SetTimer();
}

void Node::SetTimer() {
  const auto next = daemon_->core.NextDeadline();
  if (!next || (daemon_->timer && *daemon_->timer <= *next)) return;
  daemon_->timer = *next;
  Later(std::max<Duration>(*next - parts_.time->now(), 0ms), [this] {
    daemon_->timer.reset();
    Tell([&](AgentCore* core, Actions* out) {
      core->OnTick({parts_.time->now(), host_.wall()}, out);
    });
  });
}

void Node::Execute(const Actions& actions) {
  std::set<GangKey> changed;
  for (const Action& action : actions) {
    if (crash_in_ && (*crash_in_)-- <= 0) {
      crash_in_.reset();
      dying_ = true;
      LOCKSTEP_TELL(parts_.story,
                    "  the daemon of node {} dies before an action", name());
      parts_.time->After(0ms, [this] { CrashDaemon(700ms); });
    }
    if (!listens()) return;
    if (action.kind == Action::Kind::kReport) {
      changed.insert(action.gang);
    } else if (Do(action)) {
      changed.erase(action.gang);
    }
  }
  for (const GangKey& key : changed) Report(key);
}

// True: the gang is forgotten.
bool Node::Do(const Action& action) {
  const RankRef ref{action.gang, action.rank};
  switch (action.kind) {
    case Action::Kind::kPrepare:
      Prepare(action.gang);
      return false;
    case Action::Kind::kCheckOutput:
      Later(5ms, [this, key = action.gang] {
        const LocalGang* const gang = daemon_->core.Find(key);
        if (gang == nullptr) return;
        const std::string identity = gang->assignment.spec->output_identity;
        Tell([&](AgentCore* core, Actions* out) {
          core->OnOutputChecked(key, identity, out);
        });
      });
      return false;
    case Action::Kind::kStartRank:
      StartRank(ref);
      return false;
    case Action::Kind::kGo:
      Later(2ms, [this, ref] { host_.Go(ref); });
      return false;
    case Action::Kind::kAbort:
      host_.Abort(ref);
      return false;
    case Action::Kind::kDirective:
      host_.Direct(ref, action.directive);
      return false;
    case Action::Kind::kRecover:
      host_.Recover(ref, daemon_->core.Find(action.gang)->assignment);
      return false;
    case Action::Kind::kCapture:
      Later(30ms, [this, key = action.gang, evidence = action.evidence] {
        Tell([&](AgentCore* core, Actions* out) {
          core->OnCaptured(key, evidence, {parts_.time->now(), host_.wall()},
                           out);
        });
      });
      return false;
    case Action::Kind::kKillTree:
      host_.Terminate(ref, action.grace);
      if (parts_.bug == Bug::kForgetsWithLiveRank && action.grace > 0s) {
        OnProcessEnded(ref, {KilledBySignal(SIGTERM, "")});
      }
      return false;
    case Action::Kind::kForget: {
      Host::Disk* const disk = host_.disk();
      disk->gangs.erase(action.gang);
      const auto is_its = [&](const auto& entry) {
        return entry.first.gang == action.gang;
      };
      std::erase_if(disk->records, is_its);
      std::erase_if(disk->exits, is_its);
      daemon_->gets.erase(action.gang);
      daemon_->puts.erase(action.gang);
      parts_.checker->OnForgotten(name(), action.gang.job,
                                  action.gang.generation);
      return true;
    }
    case Action::Kind::kRelease:
    case Action::Kind::kReport:
      return false;
  }
  return false;
}

void Node::Prepare(const GangKey& key) {
  const Duration takes =
      parts_.time->Delay(20ms, 800ms, {31, HashOf(key.job), key.generation});
  Later(takes, [this, key] {
    const LocalGang* const gang = daemon_->core.Find(key);
    if (gang == nullptr || !gang->assignment.spec) return;
    if (std::exchange(refuses_, false)) {
      return Tell([&](AgentCore* core, Actions* out) {
        core->OnRefused(key, {Reason::kPrepareRefused, "no such program"}, out);
      });
    }
    const GangSpec& spec = *gang->assignment.spec;
    worker::agent::PreparedGang prepared;
    for (size_t task = 0; task < spec.tasks.size(); ++task) {
      prepared.ports.push_back(next_port_++);
    }
    if (HasRank0(*gang)) prepared.master_port = next_port_++;
    for (const std::string& service : spec.services) {
      if (HasRank0(*gang)) prepared.service_ports[service] = next_port_++;
    }
    if (!spec.output_directory.empty() &&
        (HasRank0(*gang) || !spec.output_identity.empty())) {
      prepared.output_identity = "out-" + gang->status.job_uid;
    }
    Tell([&](AgentCore* core, Actions* out) {
      core->OnPrepared(key, prepared, {parts_.time->now(), host_.wall()}, out);
    });
  });
}

void Node::StartRank(const RankRef& ref) {
  const LocalGang* const gang = daemon_->core.Find(ref.gang);
  if (gang == nullptr || !gang->assignment.spec) return;
  const RankStatus* const status = worker::agent::FindRank(*gang, ref.rank);
  if (status != nullptr && status->restarts > 0) {
    host_.disk()->records.erase(ref);
    host_.disk()->exits.erase(ref);
  }
  // The next daemon must find it (worker.before_start).
  Save(ref.gang);
  if (host_.Find(ref) != nullptr) {
    // A shim of this rank holds the lock.
    ExitStatus exit;
    exit.how = ExitStatus::How::kExecErrno;
    exit.message = "a shim of this rank is already running";
    return OnProcessEnded(ref, {exit});
  }
  std::optional<MonoTime> fence;
  if (gang->status.fence) {
    const auto until = daemon_->contacts.Until(*gang->status.fence);
    fence = until ? MonoTime(Duration(*until)) : parts_.time->now();
  }
  host_.Start(ref, gang->assignment, fence);
}

void Node::Save(const GangKey& key) {
  const LocalGang* const gang = daemon_->core.Find(key);
  if (gang != nullptr) {
    host_.disk()->gangs[key] = {gang->assignment, gang->status};
  }
}

GangStatus Node::StatusOf(const LocalGang& gang) const {
  GangStatus status = gang.status;
  const GangKey key{status.job, status.generation};
  for (RankStatus& rank : status.ranks) {
    if (!rank.exit) rank.progress = host_.ProgressOf({key, rank.rank});
  }
  if (parts_.bug == Bug::kForgetsWaiting) {
    for (const int32_t away : gang.assignment.away_ranks) {
      for (RankStatus& rank : status.ranks) {
        if (rank.rank == away) rank.parked = 0;
      }
    }
  }
  if (parts_.bug == Bug::kReleasesEarly &&
      status.phase == GangPhase::kStopping) {
    status.phase = GangPhase::kStopped;
    for (RankStatus& rank : status.ranks) {
      if (rank.exit) continue;
      rank.state = RankState::kExited;
      rank.exit = KilledBySignal(SIGTERM, "");
      rank.exit->victim = true;
    }
  }
  return status;
}

void Node::Report(const GangKey& key) {
  const LocalGang* const gang = daemon_->core.Find(key);
  if (gang == nullptr) return;
  if (gang->status.phase >= GangPhase::kLaunched &&
      gang->assignment.spec.has_value()) {
    Save(key);
  }
  if (!daemon_->open) return;
  parts_.network->Send(daemon_->stream, [status = StatusOf(*gang)](
                                            server::Coordinator* coordinator,
                                            server::SessionId session) {
    return coordinator->sessions()->OnGangStatus(session, status);
  });
}

// ---- Being alone ------------------------------------------------------------

void Node::Contact(bool coordinator, MonoTime sent) {
  const int64_t nanos = sent.time_since_epoch().count();
  if (coordinator) {
    daemon_->contacts.OnCoordinator(nanos);
  } else {
    daemon_->contacts.OnNeighbour(nanos);
  }
  for (const auto& [key, gang] : daemon_->core.gangs()) {
    const std::optional<Fence>& fence = gang.status.fence;
    if (!fence || IsOver(gang.status.phase)) continue;
    const std::optional<int64_t> until = daemon_->contacts.Until(*fence);
    if (!until) continue;
    const MonoTime time{Duration(*until)};
    MonoTime& renewed = daemon_->renewed[key];
    if (time - renewed < worker::agent::StepOf(*fence) / 2) continue;
    renewed = time;
    host_.Renew(key, time);
  }
}

void Node::AskNeighbours() {
  const MonoTime now = parts_.time->now();
  for (const auto& [key, gang] : daemon_->core.gangs()) {
    const std::optional<Fence>& fence = gang.status.fence;
    if (!fence || IsOver(gang.status.phase) ||
        !daemon_->contacts.NeedsNeighbours(*fence,
                                           now.time_since_epoch().count())) {
      continue;
    }
    return Later(5ms, [this, sent = now] {
      for (const int32_t other : host_.disk()->neighbours) {
        Node* const node = (*parts_.all)[static_cast<size_t>(other)].get();
        if (!node->listens() || parts_.time->now() < node->awake_ ||
            !parts_.training->Reaches(parts_.index, other)) {
          continue;
        }
        node->daemon_->answers[parts_.index] = parts_.time->now();
        Contact(false, sent);
        return;
      }
    });
  }
}

void Node::OnNeighbours(uint64_t stream, const NeighbourList& list) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnNeighbours(stream, list); });
  }
  if (stream != daemon_->stream || !daemon_->welcomed) return;
  host_.disk()->neighbours.clear();
  for (const ProbeTarget& target : list.targets) {
    host_.disk()->neighbours.push_back(target.node[0] - 'a');
  }
}

void Node::OnProbeQuery(uint64_t stream, const ProbeQuery& query) {
  if (!listens()) return;
  if (StandsFor()) {
    return Later(*StandsFor(), [=, this] { OnProbeQuery(stream, query); });
  }
  if (stream != daemon_->stream || !daemon_->welcomed) return;
  ProbeAnswer answer{query.id, {}};
  for (const ProbeTarget& target : query.targets) {
    const int32_t other = target.node[0] - 'a';
    Node* const node = (*parts_.all)[static_cast<size_t>(other)].get();
    ProbeResult result;
    result.node = target.node;
    result.reached =
        node->host_.powered() && parts_.training->Reaches(parts_.index, other);
    if (!result.reached) result.error = "Connection timed out";
    const auto last = daemon_->answers.find(other);
    result.quiet = parts_.time->now() - (last == daemon_->answers.end()
                                             ? daemon_->listens_since
                                             : last->second);
    answer.results.push_back(std::move(result));
  }
  Later(20ms, [this, stream, answer] {
    parts_.network->Send(stream, [answer](server::Coordinator* coordinator,
                                          server::SessionId session) {
      return coordinator->sessions()->OnProbed(session, answer);
    });
  });
}

}  // namespace lockstep::simulation
