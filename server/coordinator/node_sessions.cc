#include "server/coordinator/node_sessions.h"

#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "common/base/logging.h"
#include "server/core/elastic.h"
#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

// What a daemon that is not admitted yet adds to its registration.
Status NoteArrival(const GangStatus& status, std::vector<GangStatus>* gangs) {
  for (GangStatus& gang : *gangs) {
    if (gang.job == status.job && gang.generation == status.generation) {
      gang = status;
      return OkStatus();
    }
  }
  if (gangs->size() >= NodeRegistry::kMaxGangs) {
    return ResourceExhausted("a node reports more than {} gangs",
                             NodeRegistry::kMaxGangs);
  }
  gangs->push_back(status);
  return OkStatus();
}

// The task of the rank, if it runs on the node or ran there before.
const TaskStatus* TaskThatRanOn(const std::vector<TaskStatus>& tasks,
                                const NodeName& node, int32_t rank) {
  for (const TaskStatus& task : tasks) {
    const auto has = [rank](const RankStatus& status) {
      return status.rank == rank;
    };
    if (std::none_of(task.ranks.begin(), task.ranks.end(), has)) continue;
    const auto& before = task.former_nodes;
    const bool ran =
        task.node == node || std::count(before.begin(), before.end(), node) > 0;
    return ran ? &task : nullptr;
  }
  return nullptr;
}

// After how many moves it was there, for the last time. REQUIRES: it was.
int32_t MovesUpTo(const TaskStatus& task, const NodeName& node) {
  const auto& before = task.former_nodes;
  if (task.node == node) return static_cast<int32_t>(before.size());
  const auto last = std::find(before.rbegin(), before.rend(), node);
  return static_cast<int32_t>(before.rend() - last) - 1;
}

// Null: none of `here`, which are indices of `tasks`, has it.
const RankStatus* FindRank(const std::vector<TaskStatus>& tasks,
                           const std::vector<size_t>& here, int32_t rank) {
  for (const size_t task : here) {
    for (const RankStatus& status : tasks[task].ranks) {
      if (status.rank == rank) return &status;
    }
  }
  return nullptr;
}

// The GPUs of the rank's task. Tasks are in the order of their ranks.
std::vector<int32_t> TaskGpus(const Job& job, int32_t rank) {
  const auto next = std::upper_bound(
      job.tasks.begin(), job.tasks.end(), rank,
      [](int32_t number, const TaskStatus& task) {
        return !task.ranks.empty() && number < task.ranks.front().rank;
      });
  if (next == job.tasks.begin()) return {};
  return std::prev(next)->gpus;
}

}  // namespace

StatusOr<SessionId> NodeSessions::Register(
    const NodeInfo& info, const std::vector<GangStatus>& gangs,
    std::shared_ptr<WorkerLink> link, const std::vector<std::string>& work_jobs,
    int32_t probe_port, const std::vector<GpuReclaim>& reclaims) {
  MutexLock lock(&mu_);
  const SessionId id = parts_.state->nodes.NewSession();
  LOCKSTEP_RETURN_IF_ERROR(parts_.admission->Register(
      info, {id, gangs, std::move(link), work_jobs, probe_port, reclaims},
      parts_.clock->Now()));
  return id;
}

bool NodeSessions::IsContested(const NodeName& node) {
  MutexLock lock(&mu_);
  return parts_.state->nodes.newcomers().contains(node);
}

StorePoint NodeSessions::point() {
  MutexLock lock(&mu_);
  return identity_.At(parts_.writer->version());
}

Status NodeSessions::CheckObeyed(const NodeName& node,
                                 const StorePoint& obeyed) {
  MutexLock lock(&mu_);
  return parts_.guard->CheckObeyed(node, obeyed);
}

void NodeSessions::TakePower(const NodeName& node,
                             const NodeReadings& readings) {
  const Member* const member = parts_.state->members.Find(node);
  if (member == nullptr || readings.gpus.empty()) return;
  std::set<int32_t> held;
  for (const GpuReclaim& reclaim : readings.reclaims) {
    held.insert(reclaim.index);
  }
  for (const JobName& job : parts_.state->nodes.At(node).jobs) {
    const JobEntry& entry = parts_.state->jobs.At(job);
    for (const size_t index : entry.places.HoldsOn(node)) {
      const auto& gpus = entry.job->holds[index].gpus;
      held.insert(gpus.begin(), gpus.end());
    }
  }
  idle_power_.Take(member->info.gpus, readings.gpus, held);
}

void NodeSessions::TakeProgress(const NodeName& node, const RankStatus& rank,
                                JobEntry* entry, Time now) {
  const auto before = entry->meter.last_step_time();
  entry->meter.Follow(ChiefRank(*entry->job).rank);
  entry->meter.Take(rank.rank, rank.progress, now);
  std::optional<MonoTime> changed;
  if (rank.progress.change_time) {
    changed = now.mono - (now.wall - *rank.progress.change_time);
  }
  entry->stall.Take(rank, now.mono, changed);
  std::optional<GpusNow> gpus;
  if (const auto indices = TaskGpus(*entry->job, rank.rank); !indices.empty()) {
    const Member* const member = parts_.state->members.Find(node);
    gpus.emplace();
    if (member != nullptr) {
      gpus = idle_power_.Now(member->info.gpus, member->readings.gpus, indices);
    }
  }
  entry->idle.watch.Take(rank, gpus, now.mono);
  entry->progress_news = true;
  if ((entry->job->spec.kind != JobKind::kNative &&
       !AllAreRecoverable(*entry->job)) ||
      entry->meter.last_step_time() == before) {
    return;
  }
  // A finished step needed every rank: all hosts of the job live.
  parts_.detector->NoteStep(entry->job->spec.name, now.mono);
}

void NodeSessions::TakeRanks(const NodeName& node, const RankReport& report,
                             Time now) {
  auto& gangs = parts_.state->nodes.At(node).gangs;
  const auto gang = gangs.find({report.job, report.generation});
  if (gang == gangs.end()) return;
  JobEntry* entry =
      parts_.state->jobs.FindCurrent(report.job, report.generation);
  if (entry != nullptr && entry->job->uid != gang->second.job_uid) {
    entry = nullptr;
  }
  const Member* const member = parts_.state->members.Find(node);
  const Duration behind =
      member == nullptr ? Duration{} : member->clock.offset();
  for (const RankStatus& said : report.ranks) {
    for (RankStatus& rank : gang->second.ranks) {
      if (rank.rank != said.rank || rank.exit) continue;
      rank.progress = said.progress;
      rank.usage = said.usage;
      // To this coordinator's clock.
      if (rank.progress.change_time) *rank.progress.change_time += behind;
      // A node speaks for the ranks that were placed on it, and no others.
      if (entry != nullptr &&
          FindRank(entry->job->tasks, entry->places.TasksOn(node), said.rank) !=
              nullptr) {
        TakeProgress(node, rank, entry, now);
      }
    }
  }
}

Status NodeSessions::TakeBeat(const NodeName& node, NodeReadings readings,
                              Time now) {
  ClusterState& state = *parts_.state;
  const Member* member = state.members.Find(node);
  const uint64_t news = member == nullptr ? 0 : member->news;
  const std::vector<int32_t> bad_before =
      member == nullptr ? std::vector<int32_t>() : member->BadGpus();
  const std::optional<Duration> round_trip = readings.round_trip;
  TakePower(node, readings);
  LOCKSTEP_RETURN_IF_ERROR(
      state.members.Beat(node, state.nodes.At(node).session->incarnation,
                         std::move(readings), now));
  if (member == nullptr) return OkStatus();
  if (const std::vector<int32_t> bad = member->BadGpus(); bad != bad_before) {
    state.agenda.capacity_changed = true;
    state.TouchJobsOf(node);
    LOG_WARN("node {}: GPUs that get no new work: {}", node,
             bad.empty() ? "none any more"
                         : fmt::format("{}", fmt::join(bad, ", ")));
  }
  if (round_trip && parts_.observer != nullptr) {
    parts_.observer->OnRoundTrip(member->info.pool, *round_trip);
  }
  if (member->news != news) state.NoteNode(node);
  return OkStatus();
}

Status NodeSessions::OnHeartbeat(SessionId session, uint64_t sequence,
                                 NodeReadings readings,
                                 const std::vector<RankReport>& reports) {
  MutexLock lock(&mu_);
  if (IsNewcomer(session)) return OkStatus();
  ClusterState& state = *parts_.state;
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, state.nodes.NodeOf(session));
  const Time now = parts_.clock->Now();
  const Member* member = state.members.Find(node);
  const bool was_ready =
      member != nullptr && member->state == NodeState::kReady;
  LOCKSTEP_RETURN_IF_ERROR(TakeBeat(node, std::move(readings), now));
  if (!was_ready) {
    state.agenda.RoomMade(now.mono);
    state.TouchJobsOf(node);
  }
  for (const RankReport& report : reports) TakeRanks(node, report, now);
  state.nodes.At(node).session->link->SendHeartbeatAck(sequence);
  auto& newcomers = state.nodes.newcomers();
  if (const auto waiting = newcomers.find(node); waiting != newcomers.end()) {
    waiting->second.newcomer.other_beat = true;
    parts_.admission->Judge(node, now);
  }
  if (!was_ready) parts_.reconciler->ReconcileSoon(now);
  return OkStatus();
}

Status NodeSessions::OnGangStatus(SessionId session, const GangStatus& status) {
  MutexLock lock(&mu_);
  ClusterState& state = *parts_.state;
  if (WaitingNewcomer* const waiting = state.nodes.FindNewcomer(session)) {
    return NoteArrival(status, &waiting->arrival.gangs);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, state.nodes.NodeOf(session));
  const Time now = parts_.clock->Now();
  NodeEntry& entry = state.nodes.At(node);
  const GangKey key{status.job, status.generation};
  const auto known = entry.gangs.find(key);
  if (entry.gangs.size() >= NodeRegistry::kMaxGangs &&
      known == entry.gangs.end()) {
    return ResourceExhausted("node {} reports more than {} gangs", node,
                             NodeRegistry::kMaxGangs);
  }
  const bool left_over =
      known != entry.gangs.end() && state.jobs.IsLeftOver(node, known->second);
  if (left_over) state.agenda.capacity_changed = true;
  entry.gangs[key] = status;
  if (entry.work_jobs.size() < NodeRegistry::kMaxWorkJobs) {
    entry.work_jobs.insert(status.job_uid);
  }
  parts_.guard->NoteUnknown(node, now);
  state.agenda.nodes.insert(node);
  // Else the next tick, which looks at every job that lives.
  if (state.jobs.MayWait(node, status) && !left_over) return OkStatus();
  state.agenda.jobs.insert(status.job);
  parts_.reconciler->Reconcile(now);
  return OkStatus();
}

Status NodeSessions::OnProbed(SessionId session, const ProbeAnswer& answer) {
  MutexLock lock(&mu_);
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node,
                            parts_.state->nodes.NodeOf(session));
  const Time now = parts_.clock->Now();
  if (const auto job = parts_.faults->TakeAnswer(node, answer, now)) {
    parts_.state->agenda.jobs.insert(*job);
    parts_.reconciler->Reconcile(now);
  }
  parts_.detector->TakeAnswer(node, answer, now);
  return OkStatus();
}

Status NodeSessions::OnGpuChecked(SessionId session,
                                  const GpuCheckAnswer& answer) {
  MutexLock lock(&mu_);
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node,
                            parts_.state->nodes.NodeOf(session));
  const Time now = parts_.clock->Now();
  parts_.checks->TakeAnswer(node, answer, now);
  parts_.reconciler->ReconcileSoon(now);
  return OkStatus();
}

Status NodeSessions::OnPrefetched(SessionId session,
                                  std::vector<Prefetched> items) {
  MutexLock lock(&mu_);
  // It is told anew what to fetch once it is admitted.
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node,
                            parts_.state->nodes.NodeOf(session));
  parts_.prefetch->TakeReport(node, std::move(items));
  parts_.reconciler->Reconcile(parts_.clock->Now());
  return OkStatus();
}

StatusOr<bool> NodeSessions::MayMeet(const NodeName& node, const JobName& job,
                                     Generation generation) const {
  const JobEntry* const entry = parts_.state->jobs.FindCurrent(job, generation);
  if (entry == nullptr) return false;
  if (entry->places.TasksOn(node).empty()) {
    // Its ranks have moved to another node.
    if (entry->job->recovery > 0) return false;
    return PermissionDenied("job {} g{}: node {} has no rank of it", job,
                            generation, node);
  }
  return true;
}

Status NodeSessions::OnRendezvousPut(SessionId session, const JobName& job,
                                     Generation generation,
                                     const std::string& key,
                                     const std::string& value) {
  MutexLock lock(&mu_);
  // A newcomer says it again once it is admitted.
  if (IsNewcomer(session)) return OkStatus();
  NodeRegistry& nodes = parts_.state->nodes;
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, nodes.NodeOf(session));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool may, MayMeet(node, job, generation));
  if (!may) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::set<NodeName> waiting,
      parts_.rendezvous->Put(job, generation, key, value));
  for (const NodeName& name : waiting) {
    if (auto& peer = nodes.At(name).session) {
      peer->link->SendRendezvous(job, generation, key, value);
    }
  }
  return OkStatus();
}

Status NodeSessions::OnRendezvousGet(SessionId session, const JobName& job,
                                     Generation generation,
                                     const std::string& key) {
  MutexLock lock(&mu_);
  // A newcomer says it again once it is admitted.
  if (IsNewcomer(session)) return OkStatus();
  NodeRegistry& nodes = parts_.state->nodes;
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, nodes.NodeOf(session));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool may, MayMeet(node, job, generation));
  if (!may) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string* const value,
                            parts_.rendezvous->Get(job, generation, key, node));
  if (value != nullptr) {
    nodes.At(node).session->link->SendRendezvous(job, generation, key, *value);
  }
  return OkStatus();
}

int32_t NodeSessions::LifeOf(const NodeName& node, const GangKey& gang,
                             int32_t rank) const {
  const NodeEntry* const entry = parts_.state->nodes.Find(node);
  if (entry == nullptr) return -1;
  const auto said = entry->gangs.find(gang);
  if (said == entry->gangs.end()) return -1;
  for (const RankStatus& status : said->second.ranks) {
    if (status.rank == rank) return status.restarts;
  }
  return -1;
}

Status NodeSessions::CheckLog(SessionId session, const JobName& job,
                              const std::string& uid, Generation generation,
                              int32_t rank, LogPlace* place) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node,
                            parts_.state->nodes.NodeOf(session));
  const auto& gangs = parts_.state->nodes.At(node).gangs;
  if (const auto said = gangs.find({job, generation});
      said != gangs.end() && said->second.job_uid == uid &&
      parts_.guard->IsUnknown(said->second)) {
    return FailedPrecondition(
        "log of job {} g{}: this coordinator's store does not know it", job,
        generation);
  }
  const JobEntry* const entry = parts_.state->jobs.Find(job);
  if (entry == nullptr || entry->job->uid != uid) {
    return NotFound("log of job {}: there is no such job", job);
  }
  const Job& stored = *entry->job;
  const TaskStatus* known = nullptr;
  bool kept = generation == stored.generation;
  if (kept) known = TaskThatRanOn(stored.tasks, node, rank);
  for (const Attempt& attempt : stored.attempts) {
    if (kept) break;
    if (attempt.generation != generation) continue;
    kept = true;
    known = TaskThatRanOn(attempt.tasks, node, rank);
  }
  if (!kept) {
    return NotFound("log of job {} g{}: that attempt is no longer kept", job,
                    generation);
  }
  if (known == nullptr) {
    return PermissionDenied(
        "log of job {} g{} rank {}: it never ran on node {}", job, generation,
        rank, node);
  }
  if (place != nullptr) {
    // Exit messages come after the end of the job, too: then the last report
    // is written down.
    const int32_t said = LifeOf(node, {job, generation}, rank);
    for (const RankStatus& status : known->ranks) {
      if (status.rank == rank) place->life = said < 0 ? status.restarts : said;
    }
    place->moves = MovesUpTo(*known, node);
  }
  return OkStatus();
}

void NodeSessions::OnStreamEnd(SessionId session) {
  MutexLock lock(&mu_);
  ClusterState& state = *parts_.state;
  std::erase_if(state.nodes.newcomers(), [session](const auto& waiting) {
    return waiting.second.arrival.id == session;
  });
  const StatusOr<NodeName> found = state.nodes.NodeOf(session);
  if (!found.ok()) return;
  const NodeName& node = *found;
  const NodeEntry& entry = state.nodes.At(node);
  const Time now = parts_.clock->Now();
  state.members.Disconnect(node, entry.session->incarnation, now);
  state.members.NoteTasks(node, !entry.jobs.empty());
  state.nodes.Close(node);
  state.agenda.capacity_changed = true;
  state.NoteNode(node);
  LOG_WARN("node {}: its stream ended", node);
  parts_.admission->Judge(node, now);
}

void NodeSessions::DropWork(const std::string& uid) {
  MutexLock lock(&mu_);
  parts_.state->nodes.DropWork(uid);
}

void NodeSessions::CloseStreams() {
  MutexLock lock(&mu_);
  parts_.checks->EndAll(Unavailable("the coordinator is leaving"));
  parts_.state->nodes.CloseStreams(Unavailable("the coordinator is leaving"));
}

}  // namespace lockstep::server
