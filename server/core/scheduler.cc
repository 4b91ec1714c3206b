#include "server/core/scheduler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/evidence.h"
#include "server/core/holding.h"
#include "server/core/host_fit.h"
#include "server/core/place_gang.h"
#include "server/core/placement_text.h"

namespace lockstep::server {
namespace {

std::vector<HostCapacity> Emptied(std::vector<HostCapacity> hosts) {
  for (HostCapacity& host : hosts) {
    host.allocated = {};
    host.allocated_gpus.clear();
    host.holders.clear();
    host.bad_gpus.clear();
  }
  return hosts;
}

// Avoids the node that killed the job twice, if it fits elsewhere.
std::optional<std::vector<TaskPlacement>> PlaceElsewhere(
    const Job& job, std::vector<HostCapacity> hosts) {
  const std::optional<NodeName> killer = KilledTwiceOn(job);
  if (!killer) return std::nullopt;
  std::erase_if(hosts,
                [&](const HostCapacity& host) { return host.node == *killer; });
  size_t placed = 0;
  return PlaceAnew(job.spec, hosts, &placed);
}

// Returns the cause if the job fits except for separated or cooling nodes.
std::optional<Cause> KeptApart(const JobSpec& spec,
                               const std::vector<HostCapacity>& hosts) {
  std::string why = DescribeApart(hosts);
  if (why.empty() || !PlaceGang(spec, Forgiven(hosts))) return std::nullopt;
  return Cause{Reason::kCannotForm, std::move(why)};
}

Cause WhyNoRoom(const JobSpec& spec, const std::vector<HostCapacity>& hosts,
                size_t fitting, bool text) {
  if (auto apart = KeptApart(spec, hosts)) return *std::move(apart);
  return {Reason::kNoCapacity,
          text ? DescribeShortage(spec, hosts, fitting) : std::string()};
}

// Whether all hosts together have room, which is quickly found out.
bool MayFit(const JobSpec& spec, const std::vector<HostCapacity>& hosts) {
  constexpr double kRounding = 1e-6;
  Resources free;
  for (const HostCapacity& host : hosts) {
    if (!host.ready) continue;
    free.cpus += host.capacity.cpus - host.allocated.cpus;
    free.memory_bytes +=
        host.capacity.memory_bytes - host.allocated.memory_bytes;
    free.gpus += static_cast<int32_t>(host.gpus.size()) -
                 static_cast<int32_t>(host.allocated_gpus.size());
  }
  const Resources sum = server::SumOf(spec);
  return sum.cpus <= free.cpus + kRounding &&
         sum.memory_bytes <= free.memory_bytes && sum.gpus <= free.gpus;
}

// The answer to the last job that did not fit. A queue is often many jobs that
// request the same, and they get the same answer until one is placed: to make
// it for each took half of the coordinator's time.
struct Refusal {
  const JobSpec* spec;
  Cause cause;
};

// All that PlaceAnew and WhyNoRoom look at.
bool RequestTheSame(const JobSpec& a, const JobSpec& b) {
  return a.pool == b.pool && a.roles == b.roles;
}

bool MayWantTheSame(const JobSpec& a, const JobSpec& b) {
  return a.pool.empty() || b.pool.empty() || a.pool == b.pool;
}

// All hosts, and the hosts of each pool in use.
class Pools {
 public:
  struct Hosts {
    std::vector<HostCapacity> hosts;
    bool any_ready = false;
  };

  explicit Pools(std::vector<HostCapacity> hosts) {
    Hosts all{std::move(hosts), false};
    all.any_ready = AnyReady(all.hosts);
    pools_.emplace("", std::move(all));
  }

  // The reference stays valid.
  const Hosts& Of(const std::string& pool) {
    const auto [it, fresh] = pools_.try_emplace(pool);
    if (fresh) {
      it->second.hosts = HostsOfPool(pool, all());
      it->second.any_ready = AnyReady(it->second.hosts);
    }
    return it->second;
  }
  const std::vector<HostCapacity>& all() const { return pools_.at("").hosts; }

  void Take(const JobSpec& spec, const std::vector<TaskPlacement>& placement) {
    for (auto& [pool, hosts] : pools_) Occupy(spec, placement, &hosts.hosts);
  }

 private:
  static bool AnyReady(const std::vector<HostCapacity>& hosts) {
    return std::any_of(hosts.begin(), hosts.end(),
                       [](const HostCapacity& host) { return host.ready; });
  }

  std::map<std::string, Hosts> pools_;
};

}  // namespace

std::optional<std::vector<TaskPlacement>> PlaceGang(
    const JobSpec& spec, std::vector<HostCapacity> hosts) {
  size_t placed = 0;
  return PlaceAnew(spec, HostsOfPool(spec.pool, std::move(hosts)), &placed);
}

QueuePlace PlaceInQueue(const Job& job) {
  return {job.spec.priority, job.create_time, job.spec.name};
}

ScheduleResult Schedule(std::vector<QueuedJob> queue,
                        std::vector<HostCapacity> hosts,
                        const SchedulerOptions& options) {
  const auto order = [](const QueuedJob& queued) {
    const JobSpec& spec = queued.job->spec;
    return QueueOrder(spec.priority, queued.job->create_time, spec.name);
  };
  std::stable_sort(queue.begin(), queue.end(),
                   [&](const QueuedJob& a, const QueuedJob& b) {
                     return order(a) < order(b);
                   });
  ScheduleResult result;
  Pools pools(std::move(hosts));
  // Jobs that waited beyond the limit. Smaller jobs may no longer pass them.
  std::vector<const JobSpec*> blocked;
  std::optional<Refusal> refusal;
  for (const QueuedJob& queued : queue) {
    const JobSpec& spec = queued.job->spec;
    const Pools::Hosts& there = pools.Of(spec.pool);
    if (!there.any_ready) {
      result.waiting[spec.name] =
          KeptApart(spec, there.hosts)
              .value_or(Cause{
                  Reason::kNoNodes,
                  DescribeNoneReady(spec.pool, there.hosts, pools.all())});
      continue;
    }
    if (queued.backing_off) {
      const Cause& cause = queued.job->cause;
      result.waiting[spec.name] = {
          IsHoldReason(cause.reason) ? cause.reason : Reason::kBackoff,
          cause.message};
      continue;
    }
    if (!queued.job->holds.empty()) {
      result.waiting[spec.name] = {
          Reason::kReleasing,
          fmt::format("its last generation still holds resources on {}",
                      queued.job->holds.front().node)};
      continue;
    }
    const auto first = std::find_if(
        blocked.begin(), blocked.end(),
        [&](const JobSpec* other) { return MayWantTheSame(*other, spec); });
    if (first != blocked.end()) {
      result.waiting[spec.name] = {
          Reason::kBehindOthers,
          fmt::format("behind {}, which has waited longest and goes first",
                      (*first)->name)};
      continue;
    }
    auto placement = PlaceAgain(*queued.job, there.hosts);
    if (!placement) placement = PlaceElsewhere(*queued.job, there.hosts);
    const bool refused = refusal && RequestTheSame(*refusal->spec, spec);
    size_t fitting = 0;
    // The number of tasks that would fit is for the text.
    if (!placement && !refused &&
        (options.texts || MayFit(spec, there.hosts))) {
      placement = PlaceAnew(spec, there.hosts, &fitting);
    }
    if (placement) {
      pools.Take(spec, *placement);
      result.placed.push_back({spec.name, *std::move(placement)});
      refusal.reset();
      continue;
    }
    if (!refused) {
      refusal = {&spec, WhyNoRoom(spec, there.hosts, fitting, options.texts)};
    }
    result.waiting[spec.name] = refusal->cause;
    if (refusal->cause.reason != Reason::kNoCapacity) continue;
    // A job that waits for a lost node must not block all others.
    if (queued.waited > options.ageing_limit &&
        PlaceGang(spec, Emptied(there.hosts))) {
      blocked.push_back(&spec);
    }
  }
  return result;
}

std::vector<std::string> WhyNeverFits(const JobSpec& spec,
                                      std::vector<HostCapacity> hosts) {
  if (hosts.empty()) return {};
  std::string unknown_pool = DescribeUnknownPool(spec.pool, hosts);
  if (!unknown_pool.empty()) return {std::move(unknown_pool)};
  hosts = Forgiven(Emptied(HostsOfPool(spec.pool, std::move(hosts))));
  for (HostCapacity& host : hosts) host.ready = true;
  std::vector<std::string> reasons = TooLargeForAnyHost(spec, hosts);
  size_t placed = 0;
  if (!reasons.empty() || PlaceAnew(spec, hosts, &placed)) return reasons;
  int64_t tasks = 0;
  for (const RoleSpec& role : spec.roles) tasks += role.count;
  return {fmt::format(
      "its {} tasks ({} in all) do not fit on {} node{}{} together, even "
      "when empty; the nearest that would fit is {} of them",
      tasks, Describe(SumOf(spec)), hosts.size(), hosts.size() == 1 ? "" : "s",
      OfPool(spec.pool), placed)};
}

Status CheckCanEverFit(const JobSpec& spec, std::vector<HostCapacity> hosts) {
  const std::vector<std::string> reasons = WhyNeverFits(spec, std::move(hosts));
  if (reasons.empty()) return OkStatus();
  return WithReason(FailedPrecondition("job {} can never run here: {}",
                                       spec.name, fmt::join(reasons, "; and ")),
                    "NEVER_FITS");
}

}  // namespace lockstep::server
