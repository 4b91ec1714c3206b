// Finds the container engine of this host and tries it out.
#ifndef LOCKSTEP_WORKER_CONTAINER_FIND_ENGINE_H_
#define LOCKSTEP_WORKER_CONTAINER_FIND_ENGINE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/container/container_engine.h"

namespace lockstep {

struct EngineOptions {
  // "auto" (podman, else docker), "podman", "docker", or the absolute path of
  // a program of such a name.
  std::string engine = "auto";
  // Of `run`, e.g. "--runtime=runc".
  std::vector<std::string> options;
  // Of the daemon.
  std::map<std::string, std::string> environment;
  // The static program that becomes the first process of containers
  // (lockstep-shim).
  std::string init;
  // A directory of our own for the trial.
  std::string directory;
  // Ranks get limits of cores and memory.
  bool want_limits = false;
};

// An engine that has run a container here (podman: a directory with `init`
// alone, no image is needed) or whose daemon answers (docker). Where a plain
// `run` does not work, for want of cgroups v2 or of rights to raise limits, it
// is tried with what is known to help; what helped stays with the engine.
// Takes a tenth of a second to a few; blocks to `deadline` at most.
// NotFound: no program is there. Unavailable says why the last one does not
// work.
StatusOr<std::unique_ptr<ContainerEngine>> FindContainerEngine(
    const EngineOptions& options, MonoTime deadline);

// The part of the daemon's environment that an engine's client gets, nothing
// of it being a job's: where it finds its programs, settings, sockets and
// proxies.
std::vector<std::string> ClientEnvironment(
    const std::map<std::string, std::string>& environment);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CONTAINER_FIND_ENGINE_H_
