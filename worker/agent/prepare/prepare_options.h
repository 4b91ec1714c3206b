// Options for the preparation of gangs.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PREPARE_OPTIONS_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PREPARE_OPTIONS_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/status.h"
#include "worker/agent/host/disk_space.h"
#include "worker/agent/ports/port_lease.h"
#include "worker/agent/prepare/output_identity.h"
#include "worker/package/package_cache.h"

namespace lockstep::worker::agent {

struct PrepareOptions {
  // Ports are leased from these.
  std::vector<PortRange> port_ranges;
  // With less free space no gang is prepared and nothing is prefetched.
  DiskFloor disk_floor;
  // Returns the space of a directory's file system; tests replace it.
  std::function<StatusOr<DiskSpace>(const std::string&)> disk_space =
      ReadDiskSpace;
  OutputIdentityOptions output_identity;
  // Starts a thread for blocking work; throws std::system_error. Tests replace
  // it.
  std::function<std::thread(std::function<void()>)> start_thread =
      [](std::function<void()> run) { return std::thread(std::move(run)); };
  // Borrowed. Null: gangs with packages are refused.
  package::PackageCache* packages = nullptr;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREPARE_OPTIONS_H_
