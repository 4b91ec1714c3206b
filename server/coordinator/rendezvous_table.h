// The rendezvous store: the keys and values that the ranks of a generation
// exchange before they are connected.
//
// Values are soft state. A job has values of its current generation only. Pure;
// thread-compatible.
#ifndef LOCKSTEP_SERVER_COORDINATOR_RENDEZVOUS_TABLE_H_
#define LOCKSTEP_SERVER_COORDINATOR_RENDEZVOUS_TABLE_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "common/base/status.h"
#include "server/core/job.h"

namespace lockstep::server {

// Limits of the bytes that ranks may put, per generation and in all. 1 KiB for
// each of 65,536 ranks.
struct RendezvousLimits {
  size_t of_generation = 64 << 20;
  size_t of_all = 256 << 20;
};

class RendezvousTable {
 public:
  explicit RendezvousTable(const RendezvousLimits& limits) : limits_(limits) {}

  // Stores the value of `key` and returns the nodes that wait for it. A second
  // value for a key is ignored. ResourceExhausted if the ranks of this
  // generation, or of all jobs, have put too much.
  StatusOr<std::set<NodeName>> Put(const JobName& job, Generation generation,
                                   const std::string& key,
                                   const std::string& value);
  // Returns the value of `key`. Returns null if it is not set; then `node`
  // waits for it. ResourceExhausted as above.
  StatusOr<const std::string*> Get(const JobName& job, Generation generation,
                                   const std::string& key,
                                   const NodeName& node);
  // Removes the values of a job whose generation ended, or whose ranks form
  // another communicator.
  void Clear(const JobName& job);

 private:
  struct Exchange {
    std::map<std::string, std::string> values;
    // Nodes that wait for a key.
    std::map<std::string, std::set<NodeName>> waiting;
    size_t bytes = 0;
  };

  Status Charge(const JobName& job, Generation generation, size_t bytes,
                Exchange* exchange);

  const RendezvousLimits limits_;
  std::map<JobName, Exchange> exchanges_;
  // The sum over all exchanges.
  size_t bytes_ = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_RENDEZVOUS_TABLE_H_
