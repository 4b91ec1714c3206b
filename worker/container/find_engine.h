// Finds and tests the container engine of this host.
#ifndef LOCKSTEP_WORKER_CONTAINER_FIND_ENGINE_H_
#define LOCKSTEP_WORKER_CONTAINER_FIND_ENGINE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/container/container_engine.h"

namespace lockstep::worker::container {

struct EngineOptions {
  // "auto" (podman, else docker), "podman", "docker", or the absolute path of a
  // program with such a name.
  std::string engine = "auto";
  // Options of `run`, such as "--runtime=runc".
  std::vector<std::string> options;
  // Environment of the daemon.
  std::map<std::string, std::string> environment;
  // The static init program of containers (lockstep-shim).
  std::string init;
  // A private directory for the trial.
  std::string directory;
  // Ranks get limits of cores and memory.
  bool want_limits = false;
};

// Finds an engine that has run a container here (podman: a directory with
// `init`, without an image) or whose daemon answers (docker). If a plain `run`
// fails because cgroups v2 or rights to raise limits are missing, known
// workarounds are tried, and the working one stays with the engine. Takes from
// a tenth of a second to several seconds; blocks until `deadline` at most.
// NotFound if there is no program. Unavailable names the last failure.
StatusOr<std::unique_ptr<ContainerEngine>> FindContainerEngine(
    const EngineOptions& options, MonoTime deadline);

// Returns the part of the daemon's environment for an engine's client: paths,
// settings, sockets and proxies, without a job's variables.
std::vector<std::string> ClientEnvironment(
    const std::map<std::string, std::string>& environment);

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_FIND_ENGINE_H_
