// Reads the network traffic of ranks (network_meter.h): one question to the
// kernel for all of them, and the descriptors of each rank's processes.
//
// Belongs to the event loop's thread. Reads /proc and asks by sock_diag(7). On
// a host with very many connections it reads less often, so that it takes at
// most a fiftieth of the thread's time.
#ifndef LOCKSTEP_WORKER_AGENT_READINGS_RANK_NETWORK_H_
#define LOCKSTEP_WORKER_AGENT_READINGS_RANK_NETWORK_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "worker/agent/core/gang_key.h"
#include "worker/agent/readings/network_meter.h"

namespace lockstep::worker::agent {

class RankNetwork {
 public:
  RankNetwork();

  // The usage that an earlier daemon reported.
  void Adopt(const RankRef& ref, const Usage& usage);
  // A process of the rank starts anew, or the rank is forgotten.
  void Erase(const RankRef& ref) { meters_.erase(ref); }

  // Begins a reading of all ranks, unless it is too early for one.
  void Begin();
  // Reads the rank, whose processes are `pids`, and sets the bytes of `usage`.
  // They stay unknown while the kernel does not say, or while none of the
  // processes may be inspected.
  void Take(const RankRef& ref, const std::vector<pid_t>& pids, Usage* usage);
  // Ends the reading.
  void End();

  // Duration of the last reading of all ranks.
  Duration took() const { return took_; }

 private:
  uint64_t own_namespace_ = 0;
  // Null: no reading is under way.
  std::unique_ptr<SocketTable> sockets_;
  std::map<RankRef, NetworkMeter> meters_;
  MonoTime began_;
  Duration took_{};
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_READINGS_RANK_NETWORK_H_
