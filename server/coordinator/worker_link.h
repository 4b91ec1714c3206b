// The coordinator's side of one worker daemon's stream.
#ifndef LOCKSTEP_SERVER_COORDINATOR_WORKER_LINK_H_
#define LOCKSTEP_SERVER_COORDINATOR_WORKER_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/assignment.h"
#include "common/model/gpu_check.h"
#include "common/model/probe.h"
#include "server/coordinator/shared_cluster_spec.h"

namespace lockstep::server {

// Implementations queue and return, because the coordinator holds its lock.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  // Precedes all other messages: the node's daemon is admitted.
  virtual void SendWelcome() {}
  // `cluster`, if the assignment has one, is sent with it; the assignment
  // itself omits it. All nodes of a generation share the object.
  virtual void SendAssignment(
      const Assignment& assignment,
      const std::shared_ptr<const SharedClusterSpec>& cluster) = 0;
  virtual void SendRendezvous(const JobName& job, Generation generation,
                              const std::string& key,
                              const std::string& value) = 0;
  virtual void SendPrefetch(const Prefetch& wanted) = 0;
  virtual void SendHeartbeatAck(uint64_t sequence) = 0;
  // The node may remove the working directories of these jobs.
  virtual void SendDropWork(const std::vector<std::string>& uids) {
    (void)uids;
  }
  virtual void SendProbe(const ProbeQuery& query) { (void)query; }
  virtual void SendGpuCheck(const GpuCheckOrder& order) { (void)order; }
  virtual void SendNeighbours(const NeighbourList& list) { (void)list; }
  // Ends the stream: another process of the node has registered.
  virtual void Close(const Status& status) = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_WORKER_LINK_H_
