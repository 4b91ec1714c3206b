// The ports of this node's gangs and ranks: their leases, and other processes
// that listen on them.
//
// Belongs to the event loop's thread. Reads /proc.
#ifndef LOCKSTEP_WORKER_AGENT_PORTS_RANK_PORTS_H_
#define LOCKSTEP_WORKER_AGENT_PORTS_RANK_PORTS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/model/node.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/core/local_gang.h"
#include "worker/agent/ports/port_lease.h"

namespace lockstep::worker::agent {

// A process outside the rank's task listens on a port of the rank.
struct TakenPort {
  RankRef rank;
  int32_t port = 0;
  std::string holder;  // HoldersOf.
};

class RankPorts {
 public:
  // `shims` returns the processes whose trees hold this node's ranks, and
  // `has_ended` whether a rank has ended. The ports of one that has stay known
  // for CheckEnded.
  RankPorts(std::function<std::vector<pid_t>()> shims,
            std::function<bool(const RankRef&)> has_ended)
      : shims_(std::move(shims)), has_ended_(std::move(has_ended)) {}

  // ---- Leases of a gang ----
  void SetLeases(const GangKey& key, std::vector<PortLease> leases);
  // Takes the leases of a gang that an earlier daemon prepared, except those
  // that the shims of its tasks hold.
  void AdoptLeases(const GangKey& key, const GangStatus& status);
  void Release(const GangKey& key) { leases_.erase(key); }
  // Leases the ports of the previous shim again for `rank`, which is
  // restarting. Returns false if another process holds one of them.
  bool Restore(const GangKey& key, const LocalGang& gang, int32_t rank);

  // ---- Ports of a rank ----
  // Gives the rank the ports of its task and, if it is rank 0, the master's and
  // the services'. Returns the descriptors that its shim is to hold.
  std::vector<int> Hold(const RankRef& ref, const LocalGang& gang);
  void Adopt(const RankRef& ref, std::set<int32_t> ports);
  const std::set<int32_t>& Of(const RankRef& ref) { return ranks_[ref].ports; }
  // Stops watching: the rank's listeners are indistinguishable from others.
  void Unwatch(const RankRef& ref) { ranks_[ref].ports.clear(); }
  // The rank is restarting.
  void SetGoesOn(const RankRef& ref) { ranks_[ref].taken.clear(); }
  void Erase(const RankRef& ref) { ranks_.erase(ref); }

  // ---- Other processes ----
  // Another process listens on a port of the rank now.
  bool IsTaken(const RankRef& ref) { return !Taken(Of(ref)).empty(); }
  // Returns ports of running ranks that were taken since the last call.
  std::vector<TakenPort> Watch();
  // Returns a port of an ended rank that is or was taken.
  std::optional<TakenPort> CheckEnded(const RankRef& ref);

  // ---- Programs that bind without SO_REUSEADDR ----
  // No longer holds the ports of the job. Returns false if it was already known.
  bool AddPlainBinder(const std::string& job_uid);
  bool IsPlainBinder(const std::string& job_uid) const {
    return plain_binders_.contains(job_uid);
  }

 private:
  struct Ports {
    std::set<int32_t> ports;
    // Ports on which another process was seen to listen, with that process.
    std::map<int32_t, std::string> taken;
  };

  // Returns those of `ports` on which a process outside this node's ranks
  // listens, with its description.
  std::map<int32_t, std::string> Taken(const std::set<int32_t>& ports);

  const std::function<std::vector<pid_t>()> shims_;
  const std::function<bool(const RankRef&)> has_ended_;
  std::map<GangKey, std::vector<PortLease>> leases_;
  std::map<RankRef, Ports> ranks_;
  // Listening sockets of our ranks on our ports.
  std::set<uint64_t> own_listeners_;
  // Jobs, by uid.
  std::set<std::string> plain_binders_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PORTS_RANK_PORTS_H_
