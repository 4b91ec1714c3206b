// Relays rendezvous entries between this node's ranks and the coordinator, and
// stores them, because the coordinator has them only in memory.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_LINK_RENDEZVOUS_RELAY_H_
#define LOCKSTEP_WORKER_AGENT_LINK_RENDEZVOUS_RELAY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::worker::agent {

class RendezvousRelay {
 public:
  // `send` sends to the coordinator; `deliver` sends a requested value to a
  // rank.
  RendezvousRelay(
      std::function<void(const v1::WorkerMessage&)> send,
      std::function<void(const RankRef& ref, const std::string& name,
                         const std::string& value)>
          deliver)
      : send_(std::move(send)), deliver_(std::move(deliver)) {}

  // A rank sets `name` to `value`. The first value of a name counts.
  void Put(const RankRef& ref, const std::string& name,
           const std::string& value);
  // A rank requests the value of `name`.
  void Get(const RankRef& ref, const std::string& name);
  // The coordinator sends a requested value.
  void OnValue(const RendezvousEntry& entry);
  // The ranks of a native gang form the communicator of `recovery` (0: the
  // first one). Drops the entries and queries of earlier ones, and ignores them
  // from now on.
  void Raise(const GangKey& key, uint32_t recovery);
  // Sends all entries and queries again, because the coordinator may have
  // restarted.
  void SendAll();
  void Forget(const GangKey& key) { gangs_.erase(key); }

 private:
  struct Entries {
    std::map<std::string, std::string> puts;
    size_t put_bytes = 0;
    std::map<std::string, std::string> values;
    // Waiting ranks by name.
    std::map<std::string, std::set<int32_t>> gets;
    uint32_t recovery = 0;
  };

  void SendPut(const GangKey& key, const std::string& name,
               const std::string& value);
  void SendGet(const GangKey& key, const std::string& name);

  const std::function<void(const v1::WorkerMessage&)> send_;
  const std::function<void(const RankRef&, const std::string&,
                           const std::string&)>
      deliver_;
  std::map<GangKey, Entries> gangs_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_LINK_RENDEZVOUS_RELAY_H_
