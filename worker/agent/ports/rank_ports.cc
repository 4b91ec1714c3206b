#include "worker/agent/ports/rank_ports.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "common/os/procfs.h"
#include "common/os/tcp_sockets.h"
#include "worker/agent/ports/port_watch.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMostPlainBinders = 1000;

// All ports of the gang here, and whether `rank` needs them: the one of its
// task; rank 0 those that belong to no task.
std::vector<std::pair<int32_t, bool>> PortsFor(const LocalGang& gang,
                                               int32_t rank) {
  const GangStatus& status = gang.status;
  const std::vector<LocalTask>& tasks = gang.assignment.spec->tasks;
  const LocalTask* own = TaskOf(*gang.assignment.spec, rank);
  std::vector<std::pair<int32_t, bool>> ports;
  for (size_t i = 0; i < status.ports.size(); ++i) {
    ports.emplace_back(status.ports[i], i < tasks.size() && &tasks[i] == own);
  }
  if (status.master_port != 0)
    ports.emplace_back(status.master_port, rank == 0);
  for (const auto& [name, port] : status.service_ports) {
    ports.emplace_back(port, rank == 0);
  }
  return ports;
}

}  // namespace

void RankPorts::SetLeases(const GangKey& key, std::vector<PortLease> leases) {
  leases_[key] = std::move(leases);
}

void RankPorts::AdoptLeases(const GangKey& key, const GangStatus& status) {
  std::vector<int32_t> ports = status.ports;
  if (status.master_port != 0) ports.push_back(status.master_port);
  for (const auto& [name, port] : status.service_ports) ports.push_back(port);
  for (const int32_t port : ports) {
    auto lease = PortLease::Adopt(port);
    if (lease.ok()) {
      leases_[key].push_back(*std::move(lease));
    } else if (lease.status().code() != StatusCode::kAlreadyExists) {
      // AlreadyExists: its task's shim holds it, as it should.
      LOG_WARN("{}", Message(lease.status()));
    }
  }
}

// The old shim held them, and a gang whose last rank here had ended holds none
// any more.
bool RankPorts::Restore(const GangKey& key, const LocalGang& gang,
                        int32_t rank) {
  std::vector<PortLease>& leases = leases_[key];
  bool all = true;
  for (const auto& [port, needed] : PortsFor(gang, rank)) {
    if (std::any_of(leases.begin(), leases.end(), [&](const PortLease& lease) {
          return lease.port() == port;
        })) {
      continue;
    }
    auto lease = PortLease::Take(port);
    // A rank of ours may have bound it.
    if (!lease.ok()) lease = PortLease::Adopt(port);
    if (lease.ok() && IsPlainBinder(gang.assignment.job_uid)) lease->LetBind();
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
    } else if (needed) {
      all = false;
    }
  }
  return all;
}

std::vector<int> RankPorts::Hold(const RankRef& ref, const LocalGang& gang) {
  Ports& own_ports = ranks_[ref];
  own_ports.taken.clear();  // What an earlier start saw is over.
  const GangStatus& status = gang.status;
  // One of each task in the spec's order; all others are for rank 0.
  const auto& tasks = gang.assignment.spec->tasks;
  std::set<int32_t> others;
  for (size_t i = 0; i < std::min(tasks.size(), status.ports.size()); ++i) {
    const bool own = std::any_of(
        tasks[i].ranks.begin(), tasks[i].ranks.end(),
        [&](const RankSpec& rank) { return rank.rank == ref.rank; });
    (own ? own_ports.ports : others).insert(status.ports[i]);
  }
  std::vector<int> held;
  for (const PortLease& lease : leases_[ref.gang]) {
    if (ref.rank == 0 && !others.contains(lease.port())) {
      own_ports.ports.insert(lease.port());
    }
    if (!own_ports.ports.contains(lease.port())) continue;
    for (const int fd : lease.fds()) held.push_back(fd);
  }
  return held;
}

void RankPorts::Adopt(const RankRef& ref, std::set<int32_t> ports) {
  ranks_[ref].ports = std::move(ports);
}

std::map<int32_t, std::string> RankPorts::Taken(
    const std::set<int32_t>& ports) {
  std::vector<Listener> listeners = ReadListeners(ports);
  std::erase_if(listeners, [this](const Listener& listener) {
    return own_listeners_.contains(listener.inode);
  });
  if (listeners.empty()) return {};
  const std::vector<ProcessStat> all = ReadAllProcesses();
  std::set<uint64_t> own;
  for (const pid_t shim : shims_()) {
    for (const pid_t pid : TreeOf(shim, all)) own.merge(SocketsOf(pid));
  }
  std::vector<Listener> others;
  std::set<uint64_t> inodes;
  // One of ours may have ended between the looks.
  const std::vector<Listener> again = ReadListeners(ports);
  for (const Listener& listener : listeners) {
    if (std::count(again.begin(), again.end(), listener) == 0) continue;
    if (own.contains(listener.inode)) {
      // An inode comes again only when its socket is closed.
      own_listeners_.insert(listener.inode);
    } else {
      others.push_back(listener);
      inodes.insert(listener.inode);
    }
  }
  if (others.empty()) return {};
  const std::map<uint64_t, std::string> holders = HoldersOf(inodes, all);
  std::map<int32_t, std::string> taken;
  for (const Listener& listener : others) {
    taken.emplace(listener.port, holders.at(listener.inode));
  }
  return taken;
}

std::vector<TakenPort> RankPorts::Watch() {
  std::set<int32_t> watched;
  for (const auto& [ref, rank] : ranks_) {
    if (has_ended_(ref)) continue;
    for (const int32_t port : rank.ports) {
      if (!rank.taken.contains(port)) watched.insert(port);
    }
  }
  if (watched.empty()) own_listeners_.clear();
  std::vector<TakenPort> found;
  const std::map<int32_t, std::string> taken = Taken(watched);
  if (taken.empty()) return found;
  for (auto& [ref, rank] : ranks_) {
    for (const auto& [port, holder] : taken) {
      if (has_ended_(ref) || !rank.ports.contains(port) ||
          !rank.taken.emplace(port, holder).second) {
        continue;
      }
      found.push_back({ref, port, holder});
    }
  }
  return found;
}

std::optional<TakenPort> RankPorts::CheckEnded(const RankRef& ref) {
  const Ports& rank = ranks_[ref];
  std::map<int32_t, std::string> taken = Taken(rank.ports);
  taken.insert(rank.taken.begin(), rank.taken.end());
  if (taken.empty()) return std::nullopt;
  return TakenPort{ref, taken.begin()->first, taken.begin()->second};
}

bool RankPorts::AddPlainBinder(const std::string& job_uid) {
  if (plain_binders_.size() >= kMostPlainBinders) plain_binders_.clear();
  return plain_binders_.insert(job_uid).second;
}

}  // namespace lockstep::worker::agent
