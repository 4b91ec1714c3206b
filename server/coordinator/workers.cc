// What worker daemons report.

#include <fmt/ranges.h>

#include <algorithm>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {
namespace {

// About what the maps need for a key or for who waits for one.
constexpr size_t kEntryBytes = 128;
// As many as a registration may list.
constexpr size_t kMaxGangsOfNode = 4096;
constexpr size_t kMaxWorkJobsOfNode = 100'000;

// What a daemon that is not admitted yet adds to its registration.
Status NoteArrival(const GangStatus& status, std::vector<GangStatus>* gangs) {
  for (GangStatus& gang : *gangs) {
    if (gang.job == status.job && gang.generation == status.generation) {
      gang = status;
      return OkStatus();
    }
  }
  if (gangs->size() >= kMaxGangsOfNode) {
    return ResourceExhausted("a node reports more than {} gangs",
                             kMaxGangsOfNode);
  }
  gangs->push_back(status);
  return OkStatus();
}

}  // namespace

StatusOr<NodeName> Coordinator::NodeOf(SessionId session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) {
    return WithReason(Aborted("a later stream of this node has registered"),
                      "STALE_SESSION");
  }
  return it->second;
}

Coordinator::Entry* Coordinator::CurrentEntry(const JobName& job,
                                              Generation generation) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || it->second.job->generation != generation ||
      IsFinal(it->second.job->state)) {
    return nullptr;
  }
  return &it->second;
}

StatusOr<Coordinator::SessionId> Coordinator::Register(
    const NodeInfo& info, const std::vector<GangStatus>& gangs,
    std::shared_ptr<WorkerLink> link, const std::vector<std::string>& work_jobs,
    int32_t probe_port) {
  MutexLock lock(&mu_);
  const Time now = clock_->Now();
  const SessionId id = next_session_++;
  Arrival arrival{id, gangs, std::move(link), work_jobs, probe_port};
  LOCKSTEP_ASSIGN_OR_RETURN(const bool waits,
                            AwaitJudgement(info, &arrival, now));
  if (!waits) {
    LOCKSTEP_RETURN_IF_ERROR(Admit(info, std::move(arrival), now));
  }
  return id;
}

Status Coordinator::Admit(const NodeInfo& info, Arrival arrival, Time now) {
  const Member* known = members_.Find(info.name);
  const bool same_boot =
      known == nullptr || known->info.boot_id == info.boot_id;
  LOCKSTEP_RETURN_IF_ERROR(AdmitNode(info, now));
  NodeSoft& soft = nodes_[info.name];
  if (soft.session) {
    sessions_.erase(soft.session->id);
    // A machine that booted reads nothing any more. Who reads this is a copy,
    // and what it runs is started elsewhere.
    soft.session->link->Close(WithReason(
        Aborted("a later stream of node {} has registered", info.name),
        same_boot ? "STALE_SESSION" : "CLONED_NODE"));
  }
  refused_by_.erase(info.name);
  soft.session = Session();
  soft.session->id = arrival.id;
  soft.session->incarnation = info.incarnation;
  soft.session->link = std::move(arrival.link);
  soft.session->link->SendWelcome();
  sessions_[soft.session->id] = info.name;
  soft.probe_port = arrival.probe_port;
  inquiries_.erase(info.name);
  soft.reported = true;
  if (!same_boot) soft.booted = now.mono;
  soft.gangs.clear();
  soft.prefetched.clear();
  soft.work_jobs = {arrival.work_jobs.begin(), arrival.work_jobs.end()};
  for (const GangStatus& gang : arrival.gangs) {
    soft.gangs[{gang.job, gang.generation}] = gang;
    soft.work_jobs.insert(gang.job_uid);
    Touch(gang.job);
    (void)MayWait(info.name, gang);
  }
  NoteUnknown(info.name, now);
  for (const JobName& job : soft.jobs) Touch(job);
  tell_.insert(info.name);
  capacity_changed_ = true;
  room_made_ = now.mono;
  const NodeRecord record = members_.Find(info.name)->Record();
  if (record.offered) {
    LOG_WARN("node {}: {}", info.name, WaitingForApproval(record));
  }
  LOG_INFO("node {}: registered, start {}, {}, {} gangs", info.name,
           info.incarnation.counter, Describe(info.capacity),
           arrival.gangs.size());
  if (const auto& end = info.certificate_end_time;
      end && *end - now.wall < kCertificateWarning) {
    LOG_WARN(
        "node {}: the certificate of its daemon ends in {}: issue a new one "
        "and start the daemon again",
        info.name, FormatDuration(*end - now.wall));
  }
  ReconcileSoon(now);
  return OkStatus();
}

Status Coordinator::AdmitNode(const NodeInfo& info, Time now) {
  const Member* known = members_.Find(info.name);
  const bool is_new = known == nullptr;
  // Whoever has the name now is alive: its stream is open and it beats. Of
  // newcomers the judgement says it.
  if (known != nullptr && known->state == NodeState::kReady &&
      info.incarnation.counter < known->info.incarnation.counter &&
      nodes_[info.name].session) {
    NoteContest(info, now, /*proven=*/false);
  }
  LOCKSTEP_RETURN_IF_ERROR(members_.CheckRegister(info));
  const NodeRecord record = members_.Registered(info, now.wall);
  const bool news = is_new || !(known->Record() == record);
  Status stored;
  if (news) {
    StoreBatch batch;
    batch.nodes.push_back(&record);
    stored = Commit(&batch);
  }
  // Its tasks go on, and must be looked after, also while the disk is full.
  if (is_new) LOCKSTEP_RETURN_IF_ERROR(stored);
  LOCKSTEP_RETURN_IF_ERROR(members_.Register(info, now));
  if (news) {
    NoteNode(info.name);
    if (stored.ok()) unsaved_nodes_.erase(info.name);
  }
  return OkStatus();
}

void Coordinator::NoteStarted(Entry* entry, Time now) {
  if (entry->all_started_since) return;
  const Job& stored = *entry->job;
  size_t started = 0;
  for (const NodeName& node : NodesOf(stored)) {
    const NodeSoft& soft = nodes_[node];
    const auto gang = soft.gangs.find({stored.spec.name, stored.generation});
    if (gang == soft.gangs.end()) continue;
    for (const RankStatus& rank : gang->second.ranks) {
      if (rank.state >= RankState::kStarted) ++started;
    }
  }
  if (started > 0 && started == RanksOf(stored).size()) {
    entry->all_started_since = now.mono;
  }
}

void Coordinator::TakeProgress(const RankStatus& said, Entry* entry, Time now) {
  const auto before = entry->meter.last_step_time();
  entry->meter.Take(said.rank, said.progress, now);
  entry->stall.Take(said, now.mono);
  entry->progress_news = true;
  if (entry->job->spec.kind != JobKind::kNative ||
      entry->meter.last_step_time() == before) {
    return;
  }
  // A finished step needed every rank: all hosts of the job live.
  entry->proof = now.mono;
  proven_.insert(entry->job->spec.name);
}

namespace {

std::vector<size_t> TasksOn(const std::vector<TaskStatus>& tasks,
                            const NodeName& node) {
  std::vector<size_t> here;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].node == node) here.push_back(i);
  }
  return here;
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

}  // namespace

Status Coordinator::OnHeartbeat(SessionId session, uint64_t sequence,
                                NodeReadings readings,
                                const std::vector<RankReport>& reports) {
  MutexLock lock(&mu_);
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  const Time now = clock_->Now();
  NodeSoft& soft = nodes_[node];
  const Member* member = members_.Find(node);
  const bool was_ready =
      member != nullptr && member->state == NodeState::kReady;
  const uint64_t news = member == nullptr ? 0 : member->news;
  const std::vector<int32_t> bad_before =
      member == nullptr ? std::vector<int32_t>() : member->BadGpus();
  const std::optional<Duration> round_trip = readings.round_trip;
  LOCKSTEP_RETURN_IF_ERROR(
      members_.Beat(node, soft.session->incarnation, std::move(readings), now));
  if (member != nullptr && member->BadGpus() != bad_before) {
    const std::vector<int32_t> bad = member->BadGpus();
    capacity_changed_ = true;
    for (const JobName& job : soft.jobs) Touch(job);
    LOG_WARN("node {}: GPUs that get no new work: {}", node,
             bad.empty() ? "none any more"
                         : fmt::format("{}", fmt::join(bad, ", ")));
  }
  if (round_trip && member != nullptr && options_.observer != nullptr) {
    options_.observer->OnRoundTrip(member->info.pool, *round_trip);
  }
  if (member != nullptr && member->news != news) NoteNode(node);
  if (!was_ready) {
    capacity_changed_ = true;
    room_made_ = now.mono;
    for (const JobName& job : soft.jobs) Touch(job);
  }
  for (const RankReport& report : reports) {
    const auto gang = soft.gangs.find({report.job, report.generation});
    if (gang == soft.gangs.end()) continue;
    Entry* entry = CurrentEntry(report.job, report.generation);
    if (entry != nullptr && entry->job->uid != gang->second.job_uid) {
      entry = nullptr;
    }
    for (const RankStatus& said : report.ranks) {
      for (RankStatus& rank : gang->second.ranks) {
        if (rank.rank != said.rank || rank.exit) continue;
        rank.progress = said.progress;
        rank.usage = said.usage;
        // A node speaks for the ranks that were placed on it, and no others.
        if (entry != nullptr &&
            FindRank(entry->job->tasks, entry->places.TasksOn(node),
                     said.rank) != nullptr) {
          TakeProgress(said, entry, now);
        }
      }
    }
  }
  soft.session->link->SendHeartbeatAck(sequence);
  if (const auto waiting = newcomers_.find(node); waiting != newcomers_.end()) {
    waiting->second.newcomer.other_beat = true;
    JudgeNewcomer(node, now);
  }
  if (!was_ready) ReconcileSoon(now);
  return OkStatus();
}

bool Coordinator::MayWait(const NodeName& node, const GangStatus& said) {
  Entry* const entry = CurrentEntry(said.job, said.generation);
  return entry != nullptr && entry->job->uid == said.job_uid &&
         !entry->places.TasksOn(node).empty() &&
         !entry->pace.Take(*entry->job, node, said);
}

Status Coordinator::OnGangStatus(SessionId session, const GangStatus& status) {
  MutexLock lock(&mu_);
  if (Waiting* const waiting = FindNewcomer(session)) {
    return NoteArrival(status, &waiting->arrival.gangs);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  const Time now = clock_->Now();
  auto& gangs = nodes_[node].gangs;
  const GangKey key{status.job, status.generation};
  if (gangs.size() >= kMaxGangsOfNode && !gangs.contains(key)) {
    return ResourceExhausted("node {} reports more than {} gangs", node,
                             kMaxGangsOfNode);
  }
  const auto known = gangs.find(key);
  const bool left_over =
      known != gangs.end() && IsLeftOver(node, known->second);
  if (left_over) capacity_changed_ = true;
  gangs[key] = status;
  if (nodes_[node].work_jobs.size() < kMaxWorkJobsOfNode) {
    nodes_[node].work_jobs.insert(status.job_uid);
  }
  NoteUnknown(node, now);
  tell_.insert(node);
  // Else the next tick, which looks at every job that lives.
  if (MayWait(node, status) && !left_over) return OkStatus();
  Touch(status.job);
  Reconcile(now);
  return OkStatus();
}

StatusOr<Coordinator::Rendezvous*> Coordinator::FindBoard(
    const NodeName& node, const JobName& job, Generation generation) {
  Entry* entry = CurrentEntry(job, generation);
  if (entry == nullptr) return nullptr;
  // The nodes of a generation never change, so this is no late message.
  if (entry->places.TasksOn(node).empty()) {
    return PermissionDenied("job {} g{}: node {} has no rank of it", job,
                            generation, node);
  }
  return &entry->rendezvous;
}

Status Coordinator::Charge(const JobName& job, Generation generation,
                           size_t bytes, Rendezvous* board) {
  bytes += kEntryBytes;
  if (board->bytes + bytes > options_.rendezvous_bytes) {
    return ResourceExhausted(
        "job {} g{}: its ranks put more than {} into the rendezvous", job,
        generation, FormatBytes(options_.rendezvous_bytes));
  }
  if (rendezvous_bytes_ + bytes > options_.all_rendezvous_bytes) {
    return ResourceExhausted(
        "job {} g{}: the ranks of all jobs have put {} into the rendezvous, "
        "and more is not kept",
        job, generation, FormatBytes(options_.all_rendezvous_bytes));
  }
  board->bytes += bytes;
  rendezvous_bytes_ += bytes;
  return OkStatus();
}

void Coordinator::ClearBoard(Entry* entry) {
  rendezvous_bytes_ -= entry->rendezvous.bytes;
  entry->rendezvous = {};
}

Status Coordinator::OnRendezvousPut(SessionId session, const JobName& job,
                                    Generation generation,
                                    const std::string& key,
                                    const std::string& value) {
  MutexLock lock(&mu_);
  // It says it again once it is welcome.
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  LOCKSTEP_ASSIGN_OR_RETURN(Rendezvous * board,
                            FindBoard(node, job, generation));
  // Of a generation that is over, or said before.
  if (board == nullptr || board->values.contains(key)) return OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(
      Charge(job, generation, key.size() + value.size(), board));
  board->values[key] = value;
  const auto waiting = board->waiting.find(key);
  if (waiting == board->waiting.end()) return OkStatus();
  for (const NodeName& name : waiting->second) {
    if (auto& peer = nodes_[name].session) {
      peer->link->SendRendezvous(job, generation, key, value);
    }
    const size_t bytes = key.size() + name.size() + kEntryBytes;
    board->bytes -= bytes;
    rendezvous_bytes_ -= bytes;
  }
  board->waiting.erase(waiting);
  return OkStatus();
}

Status Coordinator::OnRendezvousGet(SessionId session, const JobName& job,
                                    Generation generation,
                                    const std::string& key) {
  MutexLock lock(&mu_);
  // It says it again once it is welcome.
  if (IsNewcomer(session)) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  LOCKSTEP_ASSIGN_OR_RETURN(Rendezvous * board,
                            FindBoard(node, job, generation));
  if (board == nullptr) return OkStatus();
  if (const auto value = board->values.find(key);
      value != board->values.end()) {
    nodes_[node].session->link->SendRendezvous(job, generation, key,
                                               value->second);
    return OkStatus();
  }
  const auto waiting = board->waiting.find(key);
  if (waiting == board->waiting.end() || !waiting->second.contains(node)) {
    LOCKSTEP_RETURN_IF_ERROR(
        Charge(job, generation, key.size() + node.size(), board));
    board->waiting[key].insert(node);
  }
  return OkStatus();
}

// -1: the node has nothing of it any more.
int32_t Coordinator::LifeOf(const NodeName& node, const GangKey& gang,
                            int32_t rank) {
  const auto soft = nodes_.find(node);
  if (soft == nodes_.end()) return -1;
  const auto said = soft->second.gangs.find(gang);
  if (said == soft->second.gangs.end()) return -1;
  for (const RankStatus& status : said->second.ranks) {
    if (status.rank == rank) return status.restarts;
  }
  return -1;
}

Status Coordinator::CheckLog(SessionId session, const JobName& job,
                             const std::string& uid, Generation generation,
                             int32_t rank, int32_t* life) {
  MutexLock lock(&mu_);
  LOCKSTEP_ASSIGN_OR_RETURN(const NodeName node, NodeOf(session));
  if (const auto said = nodes_[node].gangs.find({job, generation});
      said != nodes_[node].gangs.end() && said->second.job_uid == uid &&
      IsUnknown(said->second)) {
    return FailedPrecondition(
        "log of job {} g{}: this coordinator's store does not know it", job,
        generation);
  }
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || it->second.job->uid != uid) {
    return NotFound("log of job {}: there is no such job", job);
  }
  const Job& stored = *it->second.job;
  const RankStatus* known = nullptr;
  bool kept = generation == stored.generation;
  if (kept) {
    known = FindRank(stored.tasks, it->second.places.TasksOn(node), rank);
  }
  for (const Attempt& attempt : stored.attempts) {
    if (kept) break;
    if (attempt.generation != generation) continue;
    kept = true;
    known = FindRank(attempt.tasks, TasksOn(attempt.tasks, node), rank);
  }
  if (!kept) {
    return NotFound("log of job {} g{}: that attempt is no longer kept", job,
                    generation);
  }
  if (known != nullptr) {
    if (life != nullptr) {
      // Last words come after the end of the job, too: then what it was told
      // of last is written down.
      const int32_t said = LifeOf(node, {job, generation}, rank);
      *life = said < 0 ? known->restarts : said;
    }
    return OkStatus();
  }
  return PermissionDenied("log of job {} g{} rank {}: it never ran on node {}",
                          job, generation, rank, node);
}

void Coordinator::CloseStreams() {
  MutexLock lock(&mu_);
  const Status leaving = Unavailable("the coordinator is leaving");
  for (auto& [name, soft] : nodes_) {
    if (soft.session) soft.session->link->Close(leaving);
  }
  for (auto& [name, waiting] : newcomers_) waiting.arrival.link->Close(leaving);
}

void Coordinator::OnStreamEnd(SessionId session) {
  MutexLock lock(&mu_);
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) {
    std::erase_if(newcomers_, [session](const auto& waiting) {
      return waiting.second.arrival.id == session;
    });
    return;
  }
  const NodeName node = it->second;
  sessions_.erase(it);
  NodeSoft& soft = nodes_[node];
  if (!soft.session || soft.session->id != session) return;
  const Time now = clock_->Now();
  members_.Disconnect(node, soft.session->incarnation, now);
  members_.NoteTasks(node, !soft.jobs.empty());
  soft.session.reset();
  capacity_changed_ = true;
  NoteNode(node);
  LOG_WARN("node {}: its stream ended", node);
  JudgeNewcomer(node, now);
}

}  // namespace lockstep
