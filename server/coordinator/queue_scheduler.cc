#include "server/coordinator/queue_scheduler.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "server/core/replacing.h"
#include "server/core/rescale.h"
#include "server/core/spares.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// Jobs of the queue, of each pool, that are asked whether they want room that a
// running job might have. One of so many wants it where one behind them does.
constexpr size_t kMaxInLine = 50;

}  // namespace

std::vector<HostCapacity> QueueScheduler::Hosts() const {
  const ClusterState& state = *parts_.state;
  std::vector<HostCapacity> hosts;
  for (const auto& [name, member] : state.members.members()) {
    HostCapacity host;
    host.node = name;
    host.ready = member.TakesWork();
    host.drained = member.drain.has_value();
    host.capacity = member.info.capacity;
    host.gpus = member.info.gpus;
    host.bad_gpus = member.BadGpus();
    host.container_engine = member.info.container_engine;
    host.pool = member.info.pool;
    if (const NodeEntry* const node = state.nodes.Find(name)) {
      // What was fenced may still run there for a moment.
      for (const auto& [key, gang] : node->gangs) {
        if (state.jobs.IsLeftOver(name, gang)) host.ready = false;
      }
      for (const JobName& job : node->jobs) {
        const JobEntry& entry = state.jobs.At(job);
        for (const size_t index : entry.places.HoldsOn(name)) {
          const Hold& hold = entry.job->holds[index];
          host.holders.push_back({job, hold.resources});
          host.allocated.cpus += hold.resources.cpus;
          host.allocated.memory_bytes += hold.resources.memory_bytes;
          host.allocated.gpus += hold.resources.gpus;
          host.allocated_gpus.insert(host.allocated_gpus.end(),
                                     hold.gpus.begin(), hold.gpus.end());
        }
      }
    }
    hosts.push_back(std::move(host));
  }
  parts_.faults->KeepApart(&hosts);
  return hosts;
}

bool QueueScheduler::BacksOff(const JobEntry& entry, Time now) const {
  const Job& job = *entry.job;
  if (!job.not_before || now.wall >= *job.not_before) return false;
  return PassingRefusals(job) == 0 ||
         parts_.state->agenda.room_made < entry.state_since ||
         now.mono - entry.state_since < kPassingRefusalBackoff;
}

std::vector<QueuedJob> QueueScheduler::Queue(
    Time now, const std::map<JobName, Job>& changed) {
  std::vector<QueuedJob> queue;
  const std::map<std::string, NodeName> unknown = parts_.guard->UnknownUids();
  for (const QueuePlace& place : parts_.state->jobs.queued()) {
    JobEntry& entry = parts_.state->jobs.At(place.job);
    if (changed.contains(place.job) || entry.job->cancel_requested) continue;
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
  return queue;
}

std::set<NodeName> QueueScheduler::NodesThatKnow(const Job& job) const {
  std::set<NodeName> nodes;
  for (const auto& [name, member] : parts_.state->members.members()) {
    const NodeEntry* const node = parts_.state->nodes.Find(name);
    if (node != nullptr &&
        node->gangs.contains({job.spec.name, job.generation})) {
      nodes.insert(name);
    }
  }
  return nodes;
}

void QueueScheduler::PlaceReplacements(Time now,
                                       std::vector<HostCapacity>* hosts,
                                       std::map<JobName, Job>* changed) {
  parts_.state->agenda.places_wanted = false;
  std::vector<QueuePlace> order;
  for (const JobName& name : parts_.state->jobs.live()) {
    const Job& job = *parts_.state->jobs.At(name).job;
    if ((WantsPlaces(job) || WantsSpares(job)) && !changed->contains(name)) {
      order.push_back(PlaceInQueue(job));
    }
  }
  if (order.empty()) return;
  std::sort(order.begin(), order.end());
  if (hosts->empty()) *hosts = Hosts();
  std::vector<Job> jobs;
  for (const QueuePlace& place : order) {
    jobs.push_back(*parts_.state->jobs.At(place.job).job);
    server::PlaceReplacements(&jobs.back(), NodesThatKnow(jobs.back()), hosts,
                              now);
  }
  // After them: ranks wait for a replacement, and for no spare.
  for (Job& job : jobs) {
    if (WantsSpares(job)) PlaceSpares(&job, NodesThatKnow(job), hosts, now);
    if (job == *parts_.state->jobs.At(job.spec.name).job) continue;
    const JobName name = job.spec.name;
    changed->emplace(name, std::move(job));
  }
}

void QueueScheduler::Schedule(Time now, std::map<JobName, Job>* changed) {
  std::vector<HostCapacity> hosts;
  PlaceReplacements(now, &hosts, changed);
  std::vector<QueuedJob> queue = Queue(now, *changed);
  parts_.state->agenda.capacity_changed = false;
  parts_.state->agenda.ahead_changed = true;
  if (queue.empty()) return;
  const MonoTime began = parts_.clock->Now().mono;
  if (hosts.empty()) hosts = Hosts();
  ScheduleResult result = server::Schedule(std::move(queue), std::move(hosts),
                                           parts_.options->scheduler);
  if (parts_.options->observer != nullptr) {
    parts_.options->observer->OnSchedule(parts_.clock->Now().mono - began,
                                         result);
  }
  JobRegistry& jobs = parts_.state->jobs;
  for (const auto& placed : result.placed) {
    changed->emplace(placed.job,
                     Place(*jobs.At(placed.job).job, placed.placement, now));
  }
  for (auto& [name, cause] : result.waiting) {
    jobs.At(name).waiting = std::move(cause);
  }
}

void QueueScheduler::LookForMoreRoom(Time now) {
  JobRegistry& jobs = parts_.state->jobs;
  std::vector<QueuePlace> order;
  for (const JobName& name : jobs.live()) {
    JobEntry& entry = jobs.At(name);
    if (WantsToGrow(*entry.job)) {
      order.push_back(PlaceInQueue(*entry.job));
    } else {
      entry.awaited.room.reset();
    }
  }
  if (order.empty()) return;
  std::sort(order.begin(), order.end());
  std::vector<const Job*> queue;
  std::map<std::string, size_t> of_pool;
  for (const QueuePlace& place : jobs.queued()) {
    const Job* const job = jobs.At(place.job).job.get();
    if (of_pool[job->spec.pool]++ < kMaxInLine) queue.push_back(job);
  }
  std::vector<HostCapacity> hosts = Hosts();
  for (const QueuePlace& place : order) {
    JobEntry& entry = jobs.At(place.job);
    const int32_t size = RoomFor(*entry.job, queue, &hosts);
    if (size == 0) {
      entry.awaited.room.reset();
    } else if (entry.awaited.room) {
      entry.awaited.room->size = size;
    } else {
      entry.awaited.room = {size, now.mono};
    }
  }
}

}  // namespace lockstep::server
