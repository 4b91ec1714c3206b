#include "server/core/placement_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/model/names.h"
#include "server/core/host_fit.h"

namespace lockstep {
namespace {

// How much of `need` is free; 1: all of it.
double PartOf(const Resources& need, const FreeHost& free) {
  double part = 1;
  if (need.cpus > 0) part = std::min(part, free.cpus / need.cpus);
  if (need.memory_bytes > 0) {
    part = std::min(part, static_cast<double>(free.memory_bytes) /
                              static_cast<double>(need.memory_bytes));
  }
  if (need.gpus > 0) {
    const size_t gpus = MatchingGpus(free, need.gpu_type).size();
    part = std::min(part, static_cast<double>(gpus) / need.gpus);
  }
  return part;
}

// The host that has the largest part of what is shortest on it; null: none can
// run the role at all.
const HostCapacity* Nearest(const RoleSpec& role,
                            const std::vector<HostCapacity>& hosts,
                            bool ready_only) {
  const HostCapacity* best = nullptr;
  double best_part = 0;
  for (const HostCapacity& host : hosts) {
    if ((ready_only && !host.ready) || !CanRun(role, host)) continue;
    const double part = PartOf(role.resources, FreeOf(host));
    // Ties by name: the text must not change with the order of hosts.
    if (best == nullptr || part > best_part ||
        (part == best_part && host.node < best->node)) {
      best = &host;
      best_part = part;
    }
  }
  return best;
}

std::string DescribeGpus(size_t count, const std::string& type) {
  return type.empty() ? fmt::format("{} GPU{}", count, count == 1 ? "" : "s")
                      : fmt::format("{} {}", count, type);
}

// "8 GPUs on one node; the most free on one is 4 GPUs (gpu-3)": what is short
// on the nearest host.
std::string ShortOn(const Resources& need, const HostCapacity& host,
                    const std::string& pool) {
  const FreeHost free = FreeOf(host);
  const size_t gpus = MatchingGpus(free, need.gpu_type).size();
  std::vector<std::string> wanted;
  std::vector<std::string> there;
  if (need.cpus > free.cpus) {
    wanted.push_back(DescribeCpus(need.cpus));
    there.push_back(DescribeCpus(std::max(0.0, free.cpus)));
  }
  if (need.memory_bytes > free.memory_bytes) {
    wanted.push_back(FormatBytes(need.memory_bytes));
    there.push_back(FormatBytes(std::max<int64_t>(0, free.memory_bytes)));
  }
  if (static_cast<size_t>(need.gpus) > gpus) {
    wanted.push_back(
        DescribeGpus(static_cast<size_t>(need.gpus), need.gpu_type));
    there.push_back(DescribeGpus(gpus, need.gpu_type));
  }
  return fmt::format("{} on one node{}; the most free on one is {} ({})",
                     fmt::join(wanted, ", "), OfPool(pool),
                     fmt::join(there, ", "), host.node);
}

int64_t TasksOf(const JobSpec& spec) {
  int64_t tasks = 0;
  for (const RoleSpec& role : spec.roles) tasks += role.count;
  return tasks;
}

// Of the first role that fits on no ready host; empty: each fits on some.
std::string ShortOfOneTask(const JobSpec& spec,
                           const std::vector<HostCapacity>& hosts) {
  for (const RoleSpec& role : spec.roles) {
    const bool fits =
        std::any_of(hosts.begin(), hosts.end(), [&](const HostCapacity& host) {
          return host.ready && Fits(role, FreeOf(host));
        });
    if (fits) continue;
    const HostCapacity* nearest = Nearest(role, hosts, true);
    if (nearest == nullptr) {
      return fmt::format(
          "a {} task runs in a container, and no ready node{} has podman or "
          "docker",
          Name(role.type), OfPool(spec.pool));
    }
    return fmt::format("a {} task needs {}", Name(role.type),
                       ShortOn(role.resources, *nearest, spec.pool));
  }
  return "";
}

// "2 of 3 nodes are drained"; empty: none is.
std::string DescribeDrained(const std::vector<HostCapacity>& hosts) {
  const auto drained =
      std::count_if(hosts.begin(), hosts.end(),
                    [](const HostCapacity& host) { return host.drained; });
  if (drained == 0) return "";
  return fmt::format("{} of {} node{} {} drained", drained, hosts.size(),
                     hosts.size() == 1 ? "" : "s", drained == 1 ? "is" : "are");
}

}  // namespace

std::string OfPool(const std::string& pool) {
  return pool.empty() ? "" : " of pool " + pool;
}

Resources SumOf(const JobSpec& spec) {
  Resources sum;
  for (const RoleSpec& role : spec.roles) {
    sum.cpus += role.resources.cpus * role.count;
    // 65536 tasks of an exbibyte each are too much for 64 bits.
    const double memory =
        static_cast<double>(sum.memory_bytes) +
        static_cast<double>(role.resources.memory_bytes) * role.count;
    sum.memory_bytes =
        memory >= 0x1p62 ? int64_t{1} << 62 : static_cast<int64_t>(memory);
    sum.gpus += role.resources.gpus * role.count;
    if (!role.resources.gpu_type.empty())
      sum.gpu_type = role.resources.gpu_type;
  }
  return sum;
}

std::string DescribeNobodyReady(const std::string& pool,
                                const std::vector<HostCapacity>& hosts,
                                const std::vector<HostCapacity>& all) {
  if (all.empty()) return "no worker daemon is registered";
  const std::string unknown = DescribeUnknownPool(pool, all);
  if (!unknown.empty()) return unknown;
  const std::string who =
      pool.empty() ? std::string("no worker daemon") : "no node" + OfPool(pool);
  const std::string drained = DescribeDrained(hosts);
  return drained.empty() ? who + " is ready now"
                         : who + " takes work now; " + drained;
}

std::string DescribeUnknownPool(const std::string& pool,
                                const std::vector<HostCapacity>& all) {
  std::set<std::string> pools;
  for (const HostCapacity& host : all) pools.insert(host.pool);
  if (pool.empty() || pools.contains(pool)) return "";
  const std::string nearest = Nearest(pool, {pools.begin(), pools.end()});
  return fmt::format("no node{} is registered; the pool{} here {} {}{}",
                     OfPool(pool), pools.size() == 1 ? "" : "s",
                     pools.size() == 1 ? "is" : "are", fmt::join(pools, ", "),
                     nearest.empty() ? "" : ": did you mean " + nearest + "?");
}

std::string DescribeShortage(const JobSpec& spec,
                             const std::vector<HostCapacity>& hosts,
                             size_t placed) {
  std::string text = ShortOfOneTask(spec, hosts);
  if (text.empty()) {
    text = fmt::format("needs {} in {} tasks; {} of them fit{} now",
                       Describe(SumOf(spec)), TasksOf(spec), placed,
                       placed == 1 ? "s" : "");
  }
  std::vector<std::string> away;
  for (const HostCapacity& host : hosts) {
    if (!host.ready && !host.drained && away.size() < 5) {
      away.push_back(host.node);
    }
  }
  if (!away.empty()) {
    text += fmt::format("; not ready: {}", fmt::join(away, ", "));
  }
  const std::string drained = DescribeDrained(hosts);
  if (!drained.empty()) text += "; " + drained;
  return text;
}

std::string TooLargeForAnyHost(const JobSpec& spec,
                               const std::vector<HostCapacity>& hosts) {
  for (const RoleSpec& role : spec.roles) {
    const Resources& need = role.resources;
    const bool fits = std::any_of(
        hosts.begin(), hosts.end(),
        [&](const HostCapacity& host) { return Fits(role, FreeOf(host)); });
    if (fits) continue;
    const HostCapacity* best = Nearest(role, hosts, false);
    if (best == nullptr) {
      return fmt::format(
          "a {} task runs in a container, and no node{} has podman or docker: "
          "install one there and restart its worker daemon",
          Name(role.type), OfPool(spec.pool));
    }
    const size_t best_gpus = MatchingGpus(FreeOf(*best), need.gpu_type).size();
    Resources nearest = need;
    nearest.cpus = std::min(need.cpus, best->capacity.cpus);
    nearest.memory_bytes =
        std::min(need.memory_bytes, best->capacity.memory_bytes);
    nearest.gpus = std::min(need.gpus, static_cast<int32_t>(best_gpus));
    return fmt::format(
        "a {} task needs {}, more than any node{}{} has; the nearest that "
        "would fit is {} (node {})",
        Name(role.type), Describe(need), OfPool(spec.pool),
        role.container ? " with a container engine" : "", Describe(nearest),
        best->node);
  }
  return "";
}

}  // namespace lockstep
