#include "server/core/scheduler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "server/core/evidence.h"
#include "server/core/holding.h"
#include "server/core/host_fit.h"
#include "server/core/place_gang.h"
#include "server/core/placement_text.h"
#include "server/core/rescale.h"

namespace lockstep::server {
namespace {

// Returns the cause if the job fits except for separated or cooling nodes.
std::optional<Cause> KeptApart(const JobSpec& spec,
                               const std::vector<HostCapacity>& hosts) {
  std::string why = DescribeApart(hosts);
  if (why.empty() || !PlaceGang(spec, Forgiven(hosts))) return std::nullopt;
  return Cause{Reason::kCannotForm, std::move(why)};
}

// What a queued job asks for: the gang of the size that it is to have, and the
// smallest one that may run. The same for a gang of one size.
class Request {
 public:
  explicit Request(const QueuedJob& queued)
      : job_(*queued.job),
        waited_(queued.waited),
        size_(WantedSize(job_)),
        least_size_(LeastSize(job_.spec)) {
    if (size_ != SizeOf(job_.spec)) whole_ = OfSize(job_.spec, size_);
    if (least_size_ < size_) least_ = OfSize(job_.spec, least_size_);
  }

  const JobSpec& whole() const { return whole_ ? *whole_ : job_.spec; }
  const JobSpec& least() const { return least_ ? *least_ : whole(); }
  // Whether there may be room for fewer tasks, but not for all.
  bool MayBeFewer() const { return least_size_ < size_; }

  // Places in which it may start now, although there is no room for all tasks.
  std::optional<std::vector<TaskPlacement>> Fewer(
      const std::vector<HostCapacity>& hosts) const {
    return PlaceFewer(job_, LeastSizeNow(job_, waited_), size_ - 1, hosts);
  }

  struct Wait {
    Cause cause;
    std::vector<TaskPlacement> places;
  };
  // It waits for more tasks although there is room for fewer of them, in places
  // that are kept for it. Nullopt: there is not, or it does not wait for more.
  std::optional<Wait> Patience(const std::vector<HostCapacity>& hosts) const {
    const int32_t now = LeastSizeNow(job_, waited_);
    if (now == least_size_) return std::nullopt;
    auto fewer = PlaceFewer(job_, least_size_, now - 1, hosts);
    if (!fewer) return std::nullopt;
    Cause cause{Reason::kFewerTasks,
                fmt::format("waits {} for {}{} tasks, then starts with {}",
                            FormatDuration(kFullSizePatience),
                            now == size_ ? "all " : "", now, fewer->size())};
    return Wait{std::move(cause), *std::move(fewer)};
  }

 private:
  const Job& job_;
  const Duration waited_;
  const int32_t size_;
  const int32_t least_size_;
  std::optional<JobSpec> whole_;
  std::optional<JobSpec> least_;
};

Cause WhyNoRoom(const Request& request, const std::vector<HostCapacity>& hosts,
                size_t fitting, bool text) {
  const JobSpec& spec = request.least();
  if (auto apart = KeptApart(spec, hosts)) return *std::move(apart);
  if (!text) return {Reason::kNoCapacity, ""};
  std::string shortage = DescribeShortage(spec, hosts, fitting);
  if (request.MayBeFewer()) shortage = "with the fewest tasks: " + shortage;
  return {Reason::kNoCapacity, std::move(shortage)};
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
  JobSpec spec;
  Cause cause;
};

// All that PlaceAnew and WhyNoRoom look at.
bool RequestTheSame(const JobSpec& a, const JobSpec& b) {
  return a.pool == b.pool && a.roles == b.roles && a.rescale == b.rescale;
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
    const Request request(queued);
    auto placement = PlaceAgain(*queued.job, request.whole(), there.hosts);
    if (!placement) {
      placement = PlaceElsewhere(*queued.job, request.whole(), there.hosts);
    }
    const bool refused =
        refusal && RequestTheSame(refusal->spec, request.least());
    size_t fitting = 0;
    // The number of tasks that would fit is for the text.
    if (!placement && !refused &&
        (options.texts || MayFit(request.least(), there.hosts))) {
      placement = PlaceAnew(request.whole(), there.hosts, &fitting);
      if (!placement && request.MayBeFewer()) {
        placement = request.Fewer(there.hosts);
        if (!placement) {
          if (auto wait = request.Patience(there.hosts)) {
            pools.Take(spec, wait->places);
            result.waiting[spec.name] = std::move(wait->cause);
            continue;
          }
          PlaceAnew(request.least(), there.hosts, &fitting);
        }
      }
    }
    if (placement) {
      pools.Take(spec, *placement);
      result.placed.push_back({spec.name, *std::move(placement)});
      refusal.reset();
      continue;
    }
    if (!refused) {
      refusal = {request.least(),
                 WhyNoRoom(request, there.hosts, fitting, options.texts)};
    }
    result.waiting[spec.name] = refusal->cause;
    if (refusal->cause.reason != Reason::kNoCapacity) continue;
    // A job that waits for a lost node must not block all others.
    if (queued.waited > options.ageing_limit &&
        PlaceGang(request.least(), Emptied(there.hosts))) {
      blocked.push_back(&spec);
    }
  }
  return result;
}

std::vector<std::string> WhyNeverFits(const JobSpec& whole,
                                      std::vector<HostCapacity> hosts) {
  const JobSpec spec = OfSize(whole, LeastSize(whole));
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
      "its {}{} tasks ({} in all) do not fit on {} node{}{} together, even "
      "when empty; the nearest that would fit is {} of them",
      whole.rescale ? "fewest " : "", tasks, Describe(SumOf(spec)),
      hosts.size(), hosts.size() == 1 ? "" : "s", OfPool(spec.pool), placed)};
}

Status CheckCanEverFit(const JobSpec& spec, std::vector<HostCapacity> hosts) {
  const std::vector<std::string> reasons = WhyNeverFits(spec, std::move(hosts));
  if (reasons.empty()) return OkStatus();
  return WithReason(FailedPrecondition("job {} can never run here: {}",
                                       spec.name, fmt::join(reasons, "; and ")),
                    "NEVER_FITS");
}

}  // namespace lockstep::server
