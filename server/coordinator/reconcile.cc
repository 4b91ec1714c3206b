// Decide, commit, apply, tell.

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"
#include "server/core/job_size.h"
#include "server/core/verdict.h"

namespace lockstep {
namespace {

// A decision may lead to the next at once (QUEUED to PREPARING, FINISHING to
// SUCCEEDED); more rounds than states are never needed.
constexpr int kMaxRounds = 12;
// A job whose ranks stood still is said to do so again after so long.
constexpr Duration kStandingAgain = std::chrono::minutes(1);
// A cluster of so many nodes is large.
constexpr size_t kManyNodes = 64;

}  // namespace

void Coordinator::Touch(const JobName& job) { dirty_.insert(job); }

void Coordinator::TouchJobsOf(const NodeName& node) {
  for (const JobName& job : nodes_[node].jobs) Touch(job);
}

JobView Coordinator::ViewOf(const Entry& entry, Time now) {
  std::set<NodeName> names = NodesOf(*entry.job);
  for (const Hold& hold : entry.job->holds) names.insert(hold.node);
  JobView view = ViewOf(entry, now, names);
  if (entry.job->state == JobState::kPreparing && !entry.job->cluster) {
    view.fresh_key = options_.new_key();
  }
  return view;
}

JobView Coordinator::ViewOf(const Entry& entry, Time now,
                            const std::set<NodeName>& names) {
  const Job& job = *entry.job;
  JobView view;
  view.state_since = entry.state_since;
  view.all_started_since = entry.all_started_since;
  AddEvidence(entry, now, &view);
  for (const NodeName& name : names) {
    JobView::Node& node = view.nodes[name];
    if (const Member* member = members_.Find(name)) {
      node.state = member->state;
      // What else the node has may be worth waiting for; this job is not.
      if (node.state == NodeState::kUnknown &&
          job.spec.kind == JobKind::kNative &&
          member->SinceEvidence(now.mono) > PatienceWith(entry, name)) {
        node.state = NodeState::kLost;
      }
      node.cools = strikes_.CoolingOf(name) != nullptr;
      node.takes_work =
          member->TakesWork() && !node.cools && !unknown_nodes_.contains(name);
      node.bad_gpus = member->BadGpus();
      node.drain = member->drain;
      node.address = member->info.address;
      node.clock_offset = member->clock.offset();
    } else {
      // Every node that a job names was stored before: an operator said that
      // it is gone.
      node.state = NodeState::kLost;
      node.forgotten = true;
      node.takes_work = false;
    }
    const NodeSoft& soft = nodes_[name];
    node.unseen = RunsUnseen(entry, name, now);
    node.reported = soft.reported && !node.unseen;
    for (auto it = soft.gangs.lower_bound({job.spec.name, 0});
         it != soft.gangs.end() && it->first.first == job.spec.name; ++it) {
      if (node.unseen && it->first.second == job.generation) continue;
      // A stored job of the same name under another uid cannot be: names are
      // never used twice. A foreign gang is disowned in Tell.
      if (it->second.job_uid == job.uid) {
        node.gangs[it->first.second] = it->second;
      }
    }
  }
  return view;
}

void Coordinator::NoteStanding(Entry* entry, Job* job, Time now) {
  const std::optional<Stall> stall = StandingOf(*entry, now.mono);
  if (stall.has_value() == entry->standing) return;
  if (stall) {
    // One that halts again and again would fill the history with it.
    if (entry->standing_since != MonoTime{} &&
        now.mono - entry->standing_since < kStandingAgain) {
      return;
    }
    entry->standing_since = now.mono - stall->still;
    entry->stall.RecordAnnounced(*stall);
    AddEvent(job, Reason::kNoProgress, Describe(*job, *stall), now);
  } else if (job->state == JobState::kRunning && !job->failing) {
    AddEvent(job, Reason::kNoProgress,
             fmt::format("goes on after {}",
                         FormatDuration(now.mono - entry->standing_since)),
             now);
  }
  entry->standing = stall.has_value();
}

void Coordinator::NoteBadGpus(Job* job, const JobView& view, Time now) {
  if (!IsActive(job->state)) return;
  for (const TaskStatus& task : job->tasks) {
    if (task.gpus.empty()) continue;
    const auto node = view.nodes.find(task.node);
    if (node == view.nodes.end() || node->second.bad_gpus.empty()) continue;
    const Member* const member = members_.Find(task.node);
    if (member == nullptr) continue;
    for (const Gpu& gpu : member->info.gpus) {
      const auto& used = task.gpus;
      const auto& bad = node->second.bad_gpus;
      if (std::count(used.begin(), used.end(), gpu.index) == 0 ||
          std::count(bad.begin(), bad.end(), gpu.index) == 0) {
        continue;
      }
      AddEventOnce(job, Reason::kNodeGpuError,
                   fmt::format("{} uses {} of node {}: {}",
                               TaskName(task.type, task.index), GpuLabel(gpu),
                               task.node, member->GpuTrouble(gpu)),
                   now);
    }
  }
}

std::map<JobName, Job> Coordinator::DecideDirty(Time now) {
  std::map<JobName, Job> changed;
  for (const JobName& name : dirty_) {
    const auto it = jobs_.find(name);
    if (it == jobs_.end()) continue;
    Entry& entry = it->second;
    entry.pace.Decided();
    NoteStarted(&entry, now);
    JobView view = ViewOf(entry, now);
    AwaitRestarts(*entry.job, view, now, &entry.awaited_since);
    view.awaited_since = entry.awaited_since;
    view.stall = StallOf(&entry, view, now);
    Job next = Decide(*entry.job, view, options_.timeouts, now);
    NoteOutcome(&entry, next, view, now);
    NoteStanding(&entry, &next, now);
    NoteBadGpus(&next, view, now);
    if (!(next == *it->second.job)) changed.emplace(name, std::move(next));
  }
  dirty_.clear();
  return changed;
}

bool Coordinator::IsLeftOver(const NodeName& node, const GangStatus& gang) {
  if (gang.phase == GangPhase::kStopped || gang.phase == GangPhase::kRefused) {
    return false;
  }
  const auto it = jobs_.find(gang.job);
  if (it == jobs_.end() || it->second.job->uid != gang.job_uid) return true;
  const std::vector<Hold>& holds = it->second.job->holds;
  const std::vector<size_t>& here = it->second.places.HoldsOn(node);
  return std::none_of(here.begin(), here.end(), [&](size_t hold) {
    return holds[hold].generation == gang.generation;
  });
}

std::vector<HostCapacity> Coordinator::Hosts() {
  std::vector<HostCapacity> hosts;
  for (const auto& [name, member] : members_.members()) {
    HostCapacity host;
    host.node = name;
    host.ready = member.TakesWork();
    host.drained = member.drain.has_value();
    // What was fenced may still run there for a moment.
    for (const auto& [key, gang] : nodes_[name].gangs) {
      if (IsLeftOver(name, gang)) host.ready = false;
    }
    host.capacity = member.info.capacity;
    host.gpus = member.info.gpus;
    host.bad_gpus = member.BadGpus();
    host.container_engine = member.info.container_engine;
    host.pool = member.info.pool;
    for (const JobName& job : nodes_[name].jobs) {
      const Entry& entry = jobs_.at(job);
      for (const size_t index : entry.places.HoldsOn(name)) {
        const Hold& hold = entry.job->holds[index];
        host.holders.push_back({job, hold.resources});
        host.allocated.cpus += hold.resources.cpus;
        host.allocated.memory_bytes += hold.resources.memory_bytes;
        host.allocated.gpus += hold.resources.gpus;
        host.allocated_gpus.insert(host.allocated_gpus.end(), hold.gpus.begin(),
                                   hold.gpus.end());
      }
    }
    hosts.push_back(std::move(host));
  }
  KeepApart(&hosts);
  return hosts;
}

bool Coordinator::BacksOff(const Entry& entry, Time now) {
  const Job& job = *entry.job;
  if (!job.not_before || now.wall >= *job.not_before) return false;
  return PassingRefusals(job) == 0 || room_made_ < entry.state_since ||
         now.mono - entry.state_since < kPassingRefusalBackoff;
}

void Coordinator::ScheduleQueue(Time now, std::map<JobName, Job>* changed) {
  std::vector<QueuedJob> queue;
  const std::map<std::string, NodeName> unknown = UnknownUids();
  for (const QueuePlace& place : queued_) {
    const JobName& name = place.job;
    Entry& entry = jobs_.at(name);
    if (changed->contains(name) || entry.job->cancel_requested) continue;
    if (const auto it = unknown.find(entry.job->uid); it != unknown.end()) {
      entry.waiting = Cause{
          Reason::kNodeAhead,
          fmt::format("node {} runs a later generation of it, which the "
                      "coordinator's store does not know: it waits until that "
                      "has ended, or the node is drained with a grace",
                      it->second)};
      continue;
    }
    QueuedJob queued;
    queued.job = entry.job.get();
    queued.waited = now.wall - entry.job->state_time;
    queued.backing_off = BacksOff(entry, now);
    queue.push_back(queued);
  }
  capacity_changed_ = false;
  ahead_changed_ = true;
  if (queue.empty()) return;
  const MonoTime began = clock_->Now().mono;
  ScheduleResult result =
      Schedule(std::move(queue), Hosts(), options_.scheduler);
  if (options_.observer != nullptr) {
    options_.observer->OnSchedule(clock_->Now().mono - began, result);
  }
  for (const auto& placed : result.placed) {
    changed->emplace(placed.job,
                     Place(*jobs_.at(placed.job).job, placed.placement, now));
  }
  for (auto& [name, cause] : result.waiting) {
    jobs_.at(name).waiting = std::move(cause);
  }
}

Status Coordinator::Commit(StoreBatch* batch) {
  batch->version = version_ + 1;
  if (batch->request) {
    batch->forget_requests = answers_.Displaced(*batch->request);
  }
  const Time before = clock_->Now();
  const Status status = store_->Commit(*batch);
  const Duration took = clock_->Now().mono - before.mono;
  commit_seconds_ += ToSeconds(took);
  if (options_.observer != nullptr) {
    options_.observer->OnCommit(took, status.ok());
  }
  ++commits_;
  if (!status.ok()) {
    ++failed_commits_;
    if (store_healthy_) {
      LOG_ERROR("the store cannot write, commands are refused until it can: {}",
                Message(status));
    }
    store_healthy_ = false;
    if (status.code() == StatusCode::kAborted) taken_over_ = status;
    return status;
  }
  if (!store_healthy_) LOG_INFO("the store can write again");
  store_healthy_ = true;
  version_ = batch->version;
  if (batch->forget_requests_before) {
    answers_.ForgetBefore(*batch->forget_requests_before);
  }
  for (const RequestName& name : batch->forget_requests) answers_.Forget(name);
  if (batch->request) answers_.Add(*std::exchange(batch->request, {}));
  return OkStatus();
}

Status Coordinator::CommitJobs(std::map<JobName, Job> changed,
                               std::optional<AnsweredRequest> request, Time now,
                               const std::vector<const NodeRecord*>& nodes,
                               const std::vector<NodeName>& forget_nodes) {
  std::vector<std::shared_ptr<const Job>> jobs;
  for (auto& [name, job] : changed) {
    job.resource_version = version_ + 1;
    if (IsFinal(job.state)) {
      // The price of the day stays with the job.
      job.bill = BillOf(job, now);
    }
    jobs.push_back(std::make_shared<const Job>(std::move(job)));
  }
  StoreBatch batch;
  for (const auto& job : jobs) batch.jobs.push_back(job.get());
  batch.nodes = nodes;
  batch.forget_nodes = forget_nodes;
  batch.request = std::move(request);
  if (now.wall - last_forget_ > std::chrono::minutes(10)) {
    batch.forget_requests_before = now.wall - options_.remember_requests;
  }
  LOCKSTEP_RETURN_IF_ERROR(Commit(&batch));
  if (batch.forget_requests_before) last_forget_ = now.wall;
  for (const auto& job : jobs) Apply(job, now);
  hub_->Publish(version_, jobs);
  return OkStatus();
}

void Coordinator::Apply(std::shared_ptr<const Job> job, Time now) {
  const JobName& name = job->spec.name;
  Entry& entry = jobs_.try_emplace(name, options_.stall).first->second;
  const std::shared_ptr<const Job> before = entry.job;
  entry.job = job;
  if (before == nullptr) entry.spec_bytes = SpecBytes(job->spec);
  // Within a generation it never changes, but for coming and going.
  if (!job->cluster || IsFinal(job->state) || before == nullptr ||
      before->generation != job->generation) {
    entry.cluster.reset();
  }
  entry.places = JobPlaces(*job);
  entry.pace.Reset(job->generation, entry.places.nodes());
  uids_[job->uid] = name;
  if (options_.observer != nullptr) {
    options_.observer->OnJob(before.get(), *job, now);
  }
  const bool state_changed = before == nullptr || before->state != job->state;
  if (state_changed || before->generation != job->generation ||
      before->cluster.has_value() != job->cluster.has_value() ||
      before->failing.has_value() != job->failing.has_value()) {
    entry.state_since = now.mono;
    if (before != nullptr) {
      LOG_INFO("job {} g{}: {} {}{}", name, job->generation, Name(job->state),
               Name(job->cause.reason),
               job->cause.message.empty() ? "" : ": " + job->cause.message);
    }
  }
  if (before == nullptr || before->generation != job->generation) {
    entry.all_started_since.reset();
    entry.meter.Reset(job->generation);
    entry.stall.Reset(job->generation);
    ForgetPairProbe(&entry);
    ClearBoard(&entry);
  }
  const bool waits =
      job->state == JobState::kQueued || job->state == JobState::kPlacing;
  if (!waits) entry.waiting.reset();
  // Its place before: the priority may be another now.
  if (before != nullptr && queued_.erase(PlaceInQueue(*before)) > 0) {
    ahead_changed_ = true;
  }
  if (waits) {
    queued_.insert(PlaceInQueue(*job));
    capacity_changed_ = true;
  }
  if (IsFinal(job->state)) {
    ForgetPairProbe(&entry);
    strikes_.ForgetJob(job->uid);
    live_.erase(name);
    hub_->ForgetProgress(name);
    ClearBoard(&entry);
    ended_.insert({job->end_time.value_or(job->state_time), name});
  } else {
    live_.insert(name);
  }
  std::set<NodeName> involved = NodesOf(*job);
  std::set<NodeName> holding;
  for (const Hold& hold : job->holds) holding.insert(hold.node);
  if (before != nullptr) {
    for (const Hold& hold : before->holds) involved.insert(hold.node);
    if (before->holds.size() != job->holds.size()) capacity_changed_ = true;
    // A generation that was refused took no room: two jobs would wake each
    // other for ever.
    if (before->holds.size() > job->holds.size() && before->cluster) {
      room_made_ = now.mono;
    }
  }
  involved.insert(holding.begin(), holding.end());
  for (const NodeName& node : involved) {
    if (holding.contains(node)) {
      nodes_[node].jobs.insert(name);
    } else {
      nodes_[node].jobs.erase(name);
    }
  }
  tell_.merge(NodesToTell(before.get(), *job));
}

Coordinator::Wanted Coordinator::WantedOf(const std::set<NodeName>& nodes,
                                          Time now) {
  Wanted wanted;
  std::map<JobName, std::set<NodeName>> about;
  for (const NodeName& node : nodes) {
    wanted[node];
    const NodeSoft& soft = nodes_[node];
    for (const JobName& name : soft.jobs) about[name].insert(node);
    // The node may have something of a generation before the job moved away.
    for (const auto& [key, gang] : soft.gangs) about[key.first].insert(node);
  }
  for (const auto& [name, told] : about) {
    const auto it = jobs_.find(name);
    if (it == jobs_.end()) continue;
    const Entry& entry = it->second;
    std::set<NodeName> seen = told;
    if (entry.job->failing) seen.merge(NodesOf(*entry.job));
    const JobView view = ViewOf(entry, now, seen);
    const Assigner assigner(*entry.job, entry.places, view, options_.graces,
                            now);
    for (const NodeName& node : told) {
      const auto& gangs = nodes_[node].gangs;
      for (Assignment& assignment : assigner.For(node)) {
        const GangKey key{name, assignment.generation};
        const auto gang = gangs.find(key);
        if (gang != gangs.end() && IsUnknown(gang->second) &&
            !EndsUnknown(node, now)) {
          continue;
        }
        wanted[node][key] = std::move(assignment);
      }
    }
  }
  return wanted;
}

void Coordinator::Tell(Time now) {
  std::set<NodeName> nodes = std::exchange(tell_, {});
  std::erase_if(nodes, [&](const NodeName& node) {
    mu_.AssertHeld();
    return !nodes_[node].session;
  });
  for (auto& [node, wanted] : WantedOf(nodes, now)) {
    NodeSoft& soft = nodes_[node];
    for (const auto& [key, gang] : soft.gangs) {
      const auto it = jobs_.find(key.first);
      if (it == jobs_.end() || it->second.job->uid != gang.job_uid) {
        if (IsUnknown(gang) && !EndsUnknown(node, now)) continue;
        wanted[key] = DisownedAssignment(gang);
      }
    }
    for (auto& [key, assignment] : wanted) {
      assignment.epoch = epoch_;
      const auto sent = soft.session->sent.find(key);
      if (sent != soft.session->sent.end() && sent->second == assignment) {
        continue;
      }
      std::shared_ptr<const SharedClusterSpec> cluster;
      if (Assigner::HasCluster(assignment)) {
        // Kept with the job: each node that comes back would encode it anew.
        Entry& entry = jobs_.at(key.first);
        if (entry.cluster == nullptr && entry.job->cluster) {
          entry.cluster =
              std::make_shared<const SharedClusterSpec>(*entry.job->cluster);
        }
        cluster = entry.cluster;
      }
      Assignment told = assignment;
      told.version = version_;
      soft.session->link->SendAssignment(told, cluster);
      // What the node does with it needs no answer.
      if (assignment.goal == Goal::kForget) soft.gangs.erase(key);
      soft.session->sent[key] = std::move(assignment);
    }
    std::erase_if(soft.session->sent, [&](const auto& entry) {
      return !wanted.contains(entry.first) ||
             entry.second.goal == Goal::kForget;
    });
  }
}

void Coordinator::ApplyProofs() {
  for (const JobName& name : std::exchange(proven_, {})) {
    const auto it = jobs_.find(name);
    if (it == jobs_.end() || !it->second.proof) continue;
    const MonoTime when = *std::exchange(it->second.proof, {});
    for (const NodeName& node : NodesOf(*it->second.job)) {
      members_.RecordLiveness(node, when);
    }
  }
}

void Coordinator::ReconcileSoon(Time now) {
  if (members_.members().size() < kManyNodes) Reconcile(now);
}

void Coordinator::Reconcile(Time now) {
  ApplyProofs();
  ForgiveAbsence(now);
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::set<JobName> decided = dirty_;
    std::map<JobName, Job> changed = DecideDirty(now);
    if (capacity_changed_) ScheduleQueue(now, &changed);
    TakeAhead(now, &changed);
    if (changed.empty()) break;
    std::vector<JobName> names;
    for (const auto& [name, job] : changed) names.push_back(name);
    if (!CommitJobs(std::move(changed), std::nullopt, now).ok()) {
      // Nothing happened; the next tick tries again. What was decided before
      // is told all the same.
      dirty_.insert(decided.begin(), decided.end());
      capacity_changed_ = true;
      break;
    }
    for (const JobName& name : names) Touch(name);
  }
  Tell(now);
  // After the assignments: a gang joins what is being fetched for it.
  TellAhead();
}

}  // namespace lockstep
