// Builds the command line of one container. Pure.
#ifndef LOCKSTEP_WORKER_CONTAINER_RUN_ARGUMENTS_H_
#define LOCKSTEP_WORKER_CONTAINER_RUN_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/container/container_engine.h"

namespace lockstep::worker::container {

enum class EngineKind { kPodman, kDocker };

// Access of podman's containers to GPUs: the Container Device Interface, if the
// host has a description (nvidia-ctk cdi generate), or the device nodes alone,
// for images with the driver's libraries.
enum class GpuAccess { kCdi, kDeviceNodes };

struct EngineSetup {
  EngineKind kind = EngineKind::kPodman;
  std::string program;  // Absolute path.
  // Options of `run` after ours: the operator's, and workarounds for this host.
  std::vector<std::string> options;
  // Init program of a container (lockstep-shim); empty: the engine's own, if it
  // has one.
  std::string init;
  bool can_limit = true;
  // Docker: its daemon is not root (docker.com: "Rootless mode").
  bool rootless = false;
  GpuAccess gpu_access = GpuAccess::kCdi;
};

// Returns the complete `engine run ...` for `plan`. If `setup.options` choose a
// user (--user, --userns, --uidmap), they replace the plan's.
std::vector<std::string> RunArguments(const EngineSetup& setup,
                                      const ContainerPlan& plan);

// Returns the complete `engine exec ...`. With our init, podman's containers
// run the command under it, with descriptor 3.
std::vector<std::string> ExecArguments(const EngineSetup& setup,
                                       const ContainerCommand& command);

// Variables that tell the container's init (worker/shim/init.h) which
// directories were checked for `mounts`.
std::map<std::string, std::string> MountVariables(
    const std::vector<ContainerMount>& mounts);

// Returns "NAME=value" lines for --env-file, which keeps values out of the
// host's process list and the client's environment. Values that such a file
// cannot hold (with a newline, a quote or "\" that some engines interpret, a
// long line) are arguments of RunArguments instead.
std::string EnvironmentFile(
    const std::map<std::string, std::string>& environment);

// InvalidArgument if an engine's command line cannot express the plan, such as
// ":" in the path of a mount, or if the image is not a registry name: an
// option, or a file of the host that engines would read with their own rights.
Status CheckPlan(const ContainerPlan& plan);

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_RUN_ARGUMENTS_H_
