#include "tests/support/fake_daemon.h"

#include <algorithm>
#include <csignal>

namespace lockstep {

// Called with the coordinator's lock held: queues, and nothing else.
class FakeDaemon::Link final : public server::WorkerLink {
 public:
  void SendWelcome() override {
    MutexLock lock(&mu_);
    welcomed_ = true;
  }
  void SendAssignment(const Assignment& assignment,
                      const std::shared_ptr<const server::SharedClusterSpec>&
                          cluster) override {
    MutexLock lock(&mu_);
    arrived_.push_back(assignment);
    if (cluster != nullptr) arrived_.back().cluster = cluster->spec();
  }
  void SendRendezvous(const JobName& job, Generation generation,
                      const std::string& key,
                      const std::string& value) override {
    MutexLock lock(&mu_);
    values_.push_back(fmt::format("{} g{} {}={}", job, generation, key, value));
  }
  void SendPrefetch(const Prefetch& wanted) override {
    MutexLock lock(&mu_);
    prefetch_ = wanted;
  }
  void SendHeartbeatAck(uint64_t sequence) override {
    MutexLock lock(&mu_);
    acknowledged_ = sequence;
  }
  void Close(const Status& status) override {
    MutexLock lock(&mu_);
    closed_ = status;
  }

  void SendProbe(const ProbeQuery& query) override {
    MutexLock lock(&mu_);
    probes_.push_back(query);
  }

  void SendGpuCheck(const GpuCheckOrder& order) override {
    MutexLock lock(&mu_);
    checks_.push_back(order);
  }
  std::vector<GpuCheckOrder> TakeChecks() {
    MutexLock lock(&mu_);
    return std::exchange(checks_, {});
  }

  void SendNeighbours(const NeighbourList& list) override {
    MutexLock lock(&mu_);
    neighbours_ = list;
  }

  NeighbourList neighbours() const {
    MutexLock lock(&mu_);
    return neighbours_;
  }
  std::vector<ProbeQuery> TakeProbes() {
    MutexLock lock(&mu_);
    return std::exchange(probes_, {});
  }
  std::deque<Assignment> TakeArrived() {
    MutexLock lock(&mu_);
    return std::exchange(arrived_, {});
  }
  std::vector<std::string> TakeValues() {
    MutexLock lock(&mu_);
    return std::exchange(values_, {});
  }
  std::optional<Prefetch> prefetch() const {
    MutexLock lock(&mu_);
    return prefetch_;
  }
  uint64_t acknowledged() const {
    MutexLock lock(&mu_);
    return acknowledged_;
  }
  Status closed() const {
    MutexLock lock(&mu_);
    return closed_;
  }
  bool welcomed() const {
    MutexLock lock(&mu_);
    return welcomed_;
  }

 private:
  mutable Mutex mu_;
  std::deque<Assignment> arrived_ ABSL_GUARDED_BY(mu_);
  std::vector<ProbeQuery> probes_ ABSL_GUARDED_BY(mu_);
  std::vector<GpuCheckOrder> checks_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> values_ ABSL_GUARDED_BY(mu_);
  std::optional<Prefetch> prefetch_ ABSL_GUARDED_BY(mu_);
  NeighbourList neighbours_ ABSL_GUARDED_BY(mu_);
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  Status closed_ ABSL_GUARDED_BY(mu_);
  bool welcomed_ ABSL_GUARDED_BY(mu_) = false;
};

ExitStatus ExitCode(int32_t code) {
  ExitStatus exit;
  exit.value = code;
  return exit;
}

ExitStatus KilledBy(int32_t signal) {
  ExitStatus exit;
  exit.how = ExitStatus::How::kSignal;
  exit.value = signal;
  return exit;
}

FakeDaemon::FakeDaemon(NodeName node, Resources capacity,
                       std::vector<Gpu> gpus) {
  info.name = std::move(node);
  info.incarnation = {1, 77};
  info.boot_id = "boot";
  info.hostname = info.name;
  info.version = "test";
  info.address = "10.0.0.1";
  info.capacity = std::move(capacity);
  info.gpus = std::move(gpus);
}

Status FakeDaemon::Connect(server::Coordinator* coordinator) {
  Disconnect();
  auto link = std::make_shared<Link>();
  std::vector<GangStatus> report;
  for (const auto& [key, gang] : gangs) report.push_back(gang.status);
  LOCKSTEP_ASSIGN_OR_RETURN(session_, coordinator->sessions()->Register(
                                          info, report, link, {}, probe_port));
  link_ = std::move(link);
  coordinator_ = coordinator;
  beats_ = 0;
  return OkStatus();
}

void FakeDaemon::Disconnect() {
  if (coordinator_ != nullptr) coordinator_->sessions()->OnStreamEnd(session_);
  coordinator_ = nullptr;
  link_.reset();
  late_assignments_.clear();
}

void FakeDaemon::LoseCoordinator() {
  Disconnect();
  late_reports_.clear();
}

void FakeDaemon::Restart(bool adopt) {
  Disconnect();
  ++info.incarnation.counter;
  if (!adopt) {
    info.boot_id += "x";
    gangs.clear();
  }
}

FakeDaemon::Gang* FakeDaemon::Find(const JobName& job) {
  Gang* found = nullptr;
  for (auto& [key, gang] : gangs) {
    if (key.first == job) found = &gang;
  }
  return found;
}

bool FakeDaemon::Alive(const Gang& gang) {
  for (const RankStatus& rank : gang.status.ranks) {
    if (rank.state == RankState::kStarted || rank.state == RankState::kJoined) {
      return true;
    }
  }
  return false;
}

uint64_t FakeDaemon::acknowledged() const {
  return link_ ? link_->acknowledged() : 0;
}

std::optional<Prefetch> FakeDaemon::prefetch() const {
  return link_ ? link_->prefetch() : std::nullopt;
}

std::vector<GpuCheckOrder> FakeDaemon::TakeGpuChecks() {
  return link_ == nullptr ? std::vector<GpuCheckOrder>() : link_->TakeChecks();
}

std::vector<NodeName> FakeDaemon::neighbours() const {
  std::vector<NodeName> names;
  if (!link_) return names;
  for (const ProbeTarget& target : link_->neighbours().targets) {
    names.push_back(target.node);
  }
  return names;
}

bool FakeDaemon::welcomed() const { return link_ && link_->welcomed(); }

Status FakeDaemon::closed() const {
  return link_ ? link_->closed() : OkStatus();
}

Status FakeDaemon::Report(const Gang& gang) {
  if (Unlucky()) {
    late_reports_.push_back({session_, gang.status});
    if (Unlucky()) return OkStatus();  // Only later; else twice.
  }
  return coordinator_->sessions()->OnGangStatus(session_, gang.status);
}

std::vector<ImageContent> FakeDaemon::ImagesOf(const Gang& gang) const {
  std::map<std::string, ImageContent> found;
  for (const LocalTask& task : gang.assignment.spec->tasks) {
    if (!task.container) continue;
    const auto here = images.find(task.container->image);
    if (here != images.end()) found[here->first] = here->second;
  }
  for (const ImageContent& settled : gang.assignment.spec->images) {
    const auto here = found.find(settled.image);
    if (here == found.end() || IsSameContent(here->second, settled)) continue;
    here->second = settled;
    here->second.node.clear();
  }
  std::vector<ImageContent> list;
  for (const auto& [name, content] : found) list.push_back(content);
  return list;
}

void FakeDaemon::Prepare(Gang* gang) {
  GangStatus& status = gang->status;
  status.images = ImagesOf(*gang);
  status.phase = GangPhase::kPrepared;
  status.ports.clear();
  for (const LocalTask& task : gang->assignment.spec->tasks) {
    status.ports.push_back(next_port_++);
    for (const RankSpec& rank : task.ranks) {
      if (rank.rank == 0) status.master_port = next_port_++;
    }
  }
  gang->dirty = true;
}

void FakeDaemon::Stop(Gang* gang) {
  for (RankStatus& rank : gang->status.ranks) {
    if (rank.state == RankState::kExited) continue;
    if (rank.state == RankState::kPrepared) continue;
    rank.state = RankState::kExited;
    rank.exit = KilledBy(SIGTERM);
    rank.exit->victim = true;
  }
  gang->status.phase = GangPhase::kStopped;
  gang->dirty = true;
}

void FakeDaemon::Take(const Assignment& assignment) {
  assignments.push_back(assignment);
  const Key key{assignment.job, assignment.generation};
  const auto known = gangs.find(key);
  if (assignment.goal == Goal::kForget) {
    if (known != gangs.end()) gangs.erase(known);
    return;
  }
  if (known != gangs.end()) {
    Gang& gang = known->second;
    if (assignment.goal >= gang.assignment.goal) gang.assignment = assignment;
    if (habits.captures && assignment.evidence > gang.status.evidence_done) {
      gang.status.evidence_done = assignment.evidence;
      gang.dirty = true;
    }
    if (assignment.goal == Goal::kPrepare &&
        gang.status.phase == GangPhase::kPrepared &&
        ImagesOf(gang) != gang.status.images) {
      gang.status.phase = GangPhase::kPreparing;
    }
    RestartRanks(&gang);
    return;
  }
  Gang& gang = gangs[key];
  gang.assignment = assignment;
  gang.dirty = true;
  gang.status.job = assignment.job;
  gang.status.job_uid = assignment.job_uid;
  gang.status.generation = assignment.generation;
  if (assignment.goal == Goal::kStop) {
    gang.status.phase = GangPhase::kStopped;
    return;
  }
  if (assignment.goal > Goal::kPrepare) {
    gang.status.phase = GangPhase::kRefused;
    gang.status.refusal = {Reason::kNodeLost, "never prepared"};
    return;
  }
  if (habits.fences) gang.status.fence = assignment.spec->fence;
  for (const LocalTask& task : assignment.spec->tasks) {
    for (const RankSpec& rank : task.ranks) {
      RankStatus status;
      status.rank = rank.rank;
      status.local_rank = rank.local_rank;
      gang.status.ranks.push_back(status);
    }
  }
}

bool FakeDaemon::Obey(Gang* gang) {
  const auto& directives = gang->assignment.directives;
  if (std::none_of(directives.begin(), directives.end(),
                   [](const Directive& directive) {
                     return directive.kind == DirectiveKind::kStop;
                   })) {
    return false;
  }
  for (RankStatus& rank : gang->status.ranks) {
    if (rank.state == RankState::kExited) continue;
    rank.state = RankState::kExited;
    rank.exit = ExitCode(0);
    if (rank.rank == 0) {
      const int64_t step = std::max<int64_t>(1, rank.progress.committed_step);
      gang->status.checkpoint = Checkpoint{step,
                                           gang->status.generation,
                                           fmt::format("/out/ckpt-{}", step),
                                           {},
                                           100};
    }
  }
  gang->status.phase = GangPhase::kStopped;
  return gang->dirty = true;
}

// One move towards the goal; false: nothing to do.
// Says that it does; the new processes never start by themselves.
void FakeDaemon::RestartRanks(Gang* gang) {
  if (!gang->assignment.spec || gang->assignment.goal >= Goal::kStop) return;
  // Ranks that have moved here: their first process starts as at a launch.
  const bool first = gang->status.phase < GangPhase::kLaunched;
  for (const LocalTask& task : gang->assignment.spec->tasks) {
    for (const RankSpec& spec : task.ranks) {
      for (RankStatus& rank : gang->status.ranks) {
        if (rank.rank != spec.rank || rank.restarts >= spec.restarts) continue;
        RankStatus fresh;
        fresh.rank = rank.rank;
        fresh.local_rank = rank.local_rank;
        fresh.restarts = spec.restarts;
        rank = fresh;
        if (first) continue;
        gang->status.phase = GangPhase::kLaunched;
        gang->dirty = true;
      }
    }
  }
}

bool FakeDaemon::Live(Gang* gang) {
  GangStatus& status = gang->status;
  const bool over = status.phase == GangPhase::kStopped ||
                    status.phase == GangPhase::kRefused;
  const Goal goal = gang->assignment.goal;
  if (over) return false;
  if (goal == Goal::kStop) {
    if (!habits.stops) return false;
    Stop(gang);
    return true;
  }
  if (status.phase == GangPhase::kPreparing) {
    if (!habits.prepares) return false;
    if (refuses) {
      status.phase = GangPhase::kRefused;
      status.refusal = *refuses;
      return gang->dirty = true;
    }
    Prepare(gang);
    return true;
  }
  if (goal >= Goal::kLaunch && status.phase == GangPhase::kPrepared) {
    if (!habits.starts) return false;
    status.phase = GangPhase::kLaunched;
    for (RankStatus& rank : status.ranks) {
      rank.state = RankState::kStarted;
      rank.pid = next_pid_++;
    }
    gang->dirty = true;
    return true;
  }
  if (goal == Goal::kGo && habits.obeys && Obey(gang)) return true;
  bool moved = false;
  if (status.phase == GangPhase::kLaunched && habits.joins &&
      gang->assignment.spec->kind == JobKind::kNative) {
    for (RankStatus& rank : status.ranks) {
      if (rank.state != RankState::kStarted) continue;
      rank.state = RankState::kJoined;
      moved = gang->dirty = true;
    }
  }
  return moved;
}

void FakeDaemon::AnswerProbes() {
  if (!link_) return;
  for (const ProbeQuery& query : link_->TakeProbes()) {
    probes.push_back(query);
    ProbeAnswer answer{query.id, {}};
    for (const ProbeTarget& target : query.targets) {
      const auto known = reaches.find(target.node);
      if (known == reaches.end()) continue;
      ProbeResult result{target.node, known->second,
                         known->second ? "" : "Connection timed out"};
      const auto heard = quiet.find(target.node);
      if (heard != quiet.end()) result.quiet = heard->second;
      answer.results.push_back(std::move(result));
    }
    (void)coordinator_->sessions()->OnProbed(session_, answer);
  }
}

bool FakeDaemon::TakeAssignments() {
  // Those that are late come behind those that have just arrived.
  std::deque<Assignment> arrived = link_->TakeArrived();
  for (Assignment& late : std::exchange(late_assignments_, {})) {
    arrived.push_back(std::move(late));
  }
  for (const Assignment& assignment : arrived) {
    if (Unlucky()) {
      late_assignments_.push_back(assignment);
      continue;
    }
    Take(assignment);
    if (Unlucky()) Take(assignment);
  }
  return !arrived.empty();
}

bool FakeDaemon::DeliverLateReports() {
  const std::vector<LateReport> late = std::exchange(late_reports_, {});
  for (const LateReport& report : late) {
    if (Unlucky()) {
      late_reports_.push_back(report);
      continue;
    }
    const Status answer =
        coordinator_->sessions()->OnGangStatus(report.session, report.status);
    if (report.session != session_) stale_answers.push_back(answer);
  }
  return !late.empty();
}

bool FakeDaemon::Pump() {
  bool happened = false;
  if (link_) {
    happened = TakeAssignments();
    for (std::string& value : link_->TakeValues()) {
      rendezvous.push_back(std::move(value));
      happened = true;
    }
  }
  AnswerProbes();
  for (auto& [key, gang] : gangs) happened = Live(&gang) || happened;
  if (coordinator_ == nullptr) return false;
  happened = DeliverLateReports() || happened;
  for (auto& [key, gang] : gangs) {
    if (!gang.dirty) continue;
    gang.dirty = false;
    happened = true;
    if (!Report(gang).ok()) {
      Disconnect();
      break;
    }
  }
  return happened;
}

Status FakeDaemon::Beat() {
  return coordinator_->sessions()->OnHeartbeat(session_, ++beats_,
                                               {0.5, 1 << 30, {}, {}, {}}, {});
}

Status FakeDaemon::Progress(const JobName& job, Generation generation,
                            int64_t steps) {
  const auto gang = gangs.find({job, generation});
  if (gang == gangs.end()) return NotFound("no gang {} g{}", job, generation);
  for (RankStatus& rank : gang->second.status.ranks) {
    rank.progress.committed_step = steps;
    rank.progress.step = steps + 1;
    rank.progress.samples = steps * 10;
  }
  return coordinator_->sessions()->OnHeartbeat(
      session_, ++beats_, {0.5, 1 << 30, {}, {}, {}},
      {{job, generation, gang->second.status.ranks}});
}

void FakeDaemon::Exit(const JobName& job, int32_t rank, ExitStatus exit) {
  Gang* gang = Find(job);
  if (gang == nullptr) return;
  bool all = true;
  for (RankStatus& status : gang->status.ranks) {
    if (status.rank == rank) {
      status.state = RankState::kExited;
      status.exit = exit;
      gang->dirty = true;
    }
    all = all && status.state == RankState::kExited;
  }
  if (all) gang->status.phase = GangPhase::kStopped;
}

void FakeDaemon::Publish(const JobName& job, Generation generation,
                         int64_t step) {
  Gang& gang = gangs.at({job, generation});
  gang.status.checkpoint =
      Checkpoint{step, generation, fmt::format("/out/ckpt-{}", step), {}, 100};
  gang.dirty = true;
}

void PumpAll(const std::vector<FakeDaemon*>& daemons) {
  for (bool again = true; again;) {
    again = false;
    for (FakeDaemon* daemon : daemons) again = daemon->Pump() || again;
  }
}

}  // namespace lockstep
