#include "server/core/placement_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <compare>
#include <map>
#include <set>

#include "common/model/names.h"
#include "server/core/host_fit.h"

namespace lockstep::server {
namespace {

using lockstep::Nearest;

// Returns the free fraction of `need`; 1 if all is free.
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

// Returns the host whose scarcest resource covers the largest part. Null if
// none can run the role.
const HostCapacity* Nearest(const RoleSpec& role,
                            const std::vector<HostCapacity>& hosts,
                            bool ready_only) {
  const HostCapacity* best = nullptr;
  double best_part = 0;
  for (const HostCapacity& host : hosts) {
    if ((ready_only && !host.ready) || !CanRun(role, host)) continue;
    const double part = PartOf(role.resources, FreeOf(host));
    // Ties are broken by name, so that the text does not depend on the order.
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

// The part of `need` that is not free on a host.
struct Shortage {
  bool cpus = false;
  bool memory = false;
  bool gpus = false;

  auto operator<=>(const Shortage&) const = default;
};

Shortage ShortageOn(const Resources& need, const FreeHost& free) {
  return {need.cpus > free.cpus, need.memory_bytes > free.memory_bytes,
          static_cast<size_t>(need.gpus) >
              MatchingGpus(free, need.gpu_type).size()};
}

// "1 cpu, 2 GPUs": the missing resources.
std::string PartsOf(const Shortage& shortage, double cpus, int64_t memory_bytes,
                    size_t gpus, const std::string& gpu_type) {
  std::vector<std::string> parts;
  if (shortage.cpus) parts.push_back(DescribeCpus(std::max(0.0, cpus)));
  if (shortage.memory) {
    parts.push_back(FormatBytes(std::max<int64_t>(0, memory_bytes)));
  }
  if (shortage.gpus) parts.push_back(DescribeGpus(gpus, gpu_type));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string FreeText(const Shortage& shortage, const Resources& need,
                     const HostCapacity& host) {
  const FreeHost free = FreeOf(host);
  return PartsOf(shortage, free.cpus, free.memory_bytes,
                 MatchingGpus(free, need.gpu_type).size(), need.gpu_type);
}

// "big holds 4 GPUs, x holds 1 GPU": the jobs that hold missing resources on
// `host`; empty if none does.
std::string HoldersText(const Shortage& shortage, const HostCapacity& host) {
  constexpr size_t kMost = 3;
  std::vector<std::string> texts;
  size_t more = 0;
  for (const Holder& holder : host.holders) {
    const Resources& held = holder.resources;
    const Shortage part{shortage.cpus && held.cpus > 0,
                        shortage.memory && held.memory_bytes > 0,
                        shortage.gpus && held.gpus > 0};
    if (part == Shortage()) continue;
    if (texts.size() == kMost) {
      ++more;
      continue;
    }
    texts.push_back(
        fmt::format("{} holds {}", holder.job,
                    PartsOf(part, held.cpus, held.memory_bytes,
                            static_cast<size_t>(held.gpus), std::string())));
  }
  if (more > 0) texts.push_back(fmt::format("{} more jobs", more));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// "8 GPUs on one node; the most free on one is 4 GPUs (gpu-3; big holds 4
// GPUs)". If hosts lack different resources: "1 cpu, 1 GPU on one node; a has 0
// cpus free (x holds 1 cpu), c has 0 GPUs free".
std::string ShortText(const RoleSpec& role,
                      const std::vector<HostCapacity>& hosts,
                      const std::string& pool) {
  const Resources& need = role.resources;
  // The best host for each kind of shortage.
  std::map<Shortage, const HostCapacity*> kinds;
  for (const HostCapacity& host : hosts) {
    if (!host.ready || !CanRun(role, host)) continue;
    const HostCapacity*& best = kinds[ShortageOn(need, FreeOf(host))];
    const double part = PartOf(need, FreeOf(host));
    if (best == nullptr || part > PartOf(need, FreeOf(*best)) ||
        (part == PartOf(need, FreeOf(*best)) && host.node < best->node)) {
      best = &host;
    }
  }
  const auto brackets = [](const std::string& text) {
    return text.empty() ? text : " (" + text + ")";
  };
  if (kinds.size() == 1) {
    const auto& [shortage, host] = *kinds.begin();
    const std::string holders = HoldersText(shortage, *host);
    return fmt::format("{} on one node{}; the most free on one is {} ({}{}{})",
                       PartsOf(shortage, need.cpus, need.memory_bytes,
                               static_cast<size_t>(need.gpus), need.gpu_type),
                       OfPool(pool), FreeText(shortage, need, *host),
                       host->node, holders.empty() ? "" : "; ", holders);
  }
  std::vector<std::string> there;
  for (const auto& [shortage, host] : kinds) {
    there.push_back(fmt::format("{} has {} free{}", host->node,
                                FreeText(shortage, need, *host),
                                brackets(HoldersText(shortage, *host))));
  }
  return fmt::format("{} on one node{}; {}", Describe(need), OfPool(pool),
                     fmt::join(there, ", "));
}

// Returns how many tasks of `role` fit at once, at most all.
int64_t CountFitting(const RoleSpec& role, const FreeHost& free) {
  if (!Fits(role, free)) return 0;
  const Resources& need = role.resources;
  int64_t count = role.count;
  if (need.cpus > 0) {
    count = std::min<int64_t>(
        count, std::max<int64_t>(
                   1, static_cast<int64_t>(free.cpus / need.cpus + 1e-6)));
  }
  if (need.memory_bytes > 0) {
    count = std::min(count, free.memory_bytes / need.memory_bytes);
  }
  if (need.gpus > 0) {
    count = std::min(
        count, static_cast<int64_t>(MatchingGpus(free, need.gpu_type).size()) /
                   need.gpus);
  }
  return count;
}

// Returns what a host lacks for the tasks that do not fit on it.
Shortage ShortageOfRest(const JobSpec& spec, const HostCapacity& host) {
  FreeHost free = FreeOf(host);
  std::vector<const RoleSpec*> rest;
  for (const RoleSpec& role : spec.roles) {
    if (!CanRun(role, host)) continue;
    const int64_t count = CountFitting(role, free);
    if (count < role.count) rest.push_back(&role);
    Resources taken = role.resources;
    taken.cpus *= static_cast<double>(count);
    taken.memory_bytes *= count;
    taken.gpus *= static_cast<int32_t>(count);
    Take(taken, &free);
  }
  Shortage all;
  for (const RoleSpec* role : rest) {
    const Shortage one = ShortageOn(role->resources, free);
    all = {all.cpus || one.cpus, all.memory || one.memory,
           all.gpus || one.gpus};
  }
  return all;
}

// "a: big holds 6 cpus; b: other holds 2 cpus, 1 GPU" for hosts that could take
// more of the gang without other jobs. Empty if no job holds a missing
// resource.
std::string HoldersOfRest(const JobSpec& spec,
                          const std::vector<HostCapacity>& hosts) {
  constexpr size_t kMost = 3;
  // Sorted by name, so that the text does not depend on the order.
  std::map<NodeName, std::string> texts;
  for (const HostCapacity& host : hosts) {
    if (!host.ready || host.holders.empty()) continue;
    std::string holders = HoldersText(ShortageOfRest(spec, host), host);
    if (!holders.empty()) texts[host.node] = std::move(holders);
  }
  std::vector<std::string> parts;
  for (const auto& [node, holders] : texts) {
    if (parts.size() == kMost) {
      const size_t more = texts.size() - kMost;
      parts.push_back(
          fmt::format("{} more node{}", more, more == 1 ? "" : "s"));
      break;
    }
    parts.push_back(fmt::format("{}: {}", node, holders));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

int64_t TaskCountOf(const JobSpec& spec) {
  int64_t tasks = 0;
  for (const RoleSpec& role : spec.roles) tasks += role.count;
  return tasks;
}

// Describes the first role that fits on no ready host. Empty if each fits.
std::string ShortOfOneTask(const JobSpec& spec,
                           const std::vector<HostCapacity>& hosts) {
  for (const RoleSpec& role : spec.roles) {
    const bool fits =
        std::any_of(hosts.begin(), hosts.end(), [&](const HostCapacity& host) {
          return host.ready && Fits(role, FreeOf(host));
        });
    if (fits) continue;
    if (Nearest(role, hosts, true) == nullptr) {
      return fmt::format(
          "a {} task runs in a container, and no ready node{} has podman or "
          "docker",
          Name(role.type), OfPool(spec.pool));
    }
    return fmt::format("a {} task needs {}", Name(role.type),
                       ShortText(role, hosts, spec.pool));
  }
  return "";
}

// "a worker task needs 8 cpus, more than any node has; ...". REQUIRES: a host
// can run `role`.
std::string TooLarge(const RoleSpec& role,
                     const std::vector<HostCapacity>& hosts,
                     const std::string& pool) {
  const Resources& need = role.resources;
  const HostCapacity* best = Nearest(role, hosts, false);
  const size_t best_gpus = MatchingGpus(FreeOf(*best), need.gpu_type).size();
  Resources nearest = need;
  nearest.cpus = std::min(need.cpus, best->capacity.cpus);
  nearest.memory_bytes =
      std::min(need.memory_bytes, best->capacity.memory_bytes);
  nearest.gpus = std::min(need.gpus, static_cast<int32_t>(best_gpus));
  return fmt::format(
      "a {} task needs {}, more than any node{}{} has; the nearest that "
      "would fit is {} (node {})",
      Name(role.type), Describe(need), OfPool(pool),
      role.container ? " with a container engine" : "", Describe(nearest),
      best->node);
}

// "2 of 3 nodes are drained"; empty if none is.
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
    // 65536 tasks of an exbibyte each exceed 64 bits.
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

std::string DescribeNoneReady(const std::string& pool,
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

std::string DescribeApart(const std::vector<HostCapacity>& hosts) {
  constexpr size_t kMost = 4;
  std::set<NodeName> here;
  for (const HostCapacity& host : hosts) here.insert(host.node);
  std::vector<std::string> texts;
  size_t more = 0;
  const auto add = [&](std::string text) {
    if (texts.size() == kMost) {
      ++more;
    } else {
      texts.push_back(std::move(text));
    }
  };
  for (const HostCapacity& host : hosts) {
    if (!host.cooling.empty()) add(host.node + " " + host.cooling);
    for (const auto& [node, why] : host.apart) {
      // Each of the two lists it.
      if (host.node < node && here.contains(node)) add(why);
    }
  }
  if (more > 0) texts.push_back(fmt::format("{} more", more));
  return fmt::format("{}", fmt::join(texts, "; "));
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
                       Describe(SumOf(spec)), TaskCountOf(spec), placed,
                       placed == 1 ? "s" : "");
    if (const std::string who = HoldersOfRest(spec, hosts); !who.empty()) {
      text += fmt::format(" ({})", who);
    }
  }
  std::vector<std::string> away;
  for (const HostCapacity& host : hosts) {
    if (!host.ready && !host.drained && host.cooling.empty() &&
        away.size() < 5) {
      away.push_back(host.node);
    }
  }
  if (const std::string apart = DescribeApart(hosts); !apart.empty()) {
    text += "; " + apart;
  }
  if (!away.empty()) {
    text += fmt::format("; not ready: {}", fmt::join(away, ", "));
  }
  const std::string drained = DescribeDrained(hosts);
  if (!drained.empty()) text += "; " + drained;
  return text;
}

std::vector<std::string> TooLargeForAnyHost(
    const JobSpec& spec, const std::vector<HostCapacity>& hosts) {
  const auto some_host = [&](const auto& takes) {
    return std::any_of(hosts.begin(), hosts.end(), takes);
  };
  std::vector<std::string> reasons;
  std::vector<const RoleSpec*> described;
  for (const RoleSpec& role : spec.roles) {
    // A worker with the chief's request needs no sentence of its own.
    const bool again = std::any_of(
        described.begin(), described.end(), [&](const RoleSpec* other) {
          return other->resources == role.resources &&
                 other->container.has_value() == role.container.has_value();
        });
    if (again) continue;
    if (some_host([&](const HostCapacity& host) {
          return Fits(role, FreeOf(host));
        })) {
      continue;
    }
    described.push_back(&role);
    RoleSpec bare = role;
    bare.container.reset();
    const bool engine =
        some_host([&](const HostCapacity& host) { return CanRun(role, host); });
    const bool room = some_host(
        [&](const HostCapacity& host) { return Fits(bare, FreeOf(host)); });
    if (!engine) {
      reasons.push_back(fmt::format(
          "a {} task runs in a container, and no node{} has podman or docker: "
          "install one and restart the worker daemon",
          Name(role.type), OfPool(spec.pool)));
      if (room) continue;
    }
    reasons.push_back(TooLarge(engine ? role : bare, hosts, spec.pool));
  }
  return reasons;
}

}  // namespace lockstep::server
