// How the coordinator speaks to one worker daemon's stream.
#ifndef LOCKSTEP_SERVER_COORDINATOR_WORKER_LINK_H_
#define LOCKSTEP_SERVER_COORDINATOR_WORKER_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/probe.h"
#include "server/coordinator/shared_cluster_spec.h"

namespace lockstep {

// Implementations queue and return: the coordinator calls with its lock held.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // The node's daemon is admitted: comes before everything else.
  virtual void SendWelcome() {}
  // `cluster`, where the goal has one, goes with it: the assignment itself is
  // without. It is the same object for all nodes of a generation.
  virtual void SendAssignment(
      const Assignment& assignment,
      const std::shared_ptr<const SharedClusterSpec>& cluster) = 0;
  virtual void SendRendezvous(const JobName& job, Generation generation,
                              const std::string& key,
                              const std::string& value) = 0;
  virtual void SendPrefetch(const Prefetch& wanted) = 0;
  virtual void SendHeartbeatAck(uint64_t sequence) = 0;
  // The working directories of these jobs may be removed.
  virtual void SendDropWork(const std::vector<std::string>& uids) {
    (void)uids;
  }
  virtual void SendProbe(const ProbeQuery& query) { (void)query; }
  // Ends the stream: another process of the node has taken over.
  virtual void Close(const Status& status) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_COORDINATOR_WORKER_LINK_H_
