// The command line of one container. Pure.
#ifndef LOCKSTEP_WORKER_CONTAINER_RUN_ARGUMENTS_H_
#define LOCKSTEP_WORKER_CONTAINER_RUN_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/container/container_engine.h"

namespace lockstep {

enum class EngineKind { kPodman, kDocker };

// How podman's containers get at GPUs: by the Container Device Interface, where
// the host has a description of them (nvidia-ctk cdi generate), or by their
// device nodes alone, for images that bring the driver's libraries themselves.
enum class GpuAccess { kCdi, kDeviceNodes };

struct EngineSetup {
  EngineKind kind = EngineKind::kPodman;
  std::string program;  // Absolute path.
  // Of `run`, after ours: the operator's, and what makes it work here.
  std::vector<std::string> options;
  // The first process of a container (lockstep-shim); empty: the engine's own,
  // where it has one.
  std::string init;
  bool can_limit = true;
  // Docker: its daemon is not root (docker.com: "Rootless mode").
  bool rootless = false;
  GpuAccess gpu_access = GpuAccess::kCdi;
};

// `engine run ...` for `plan`, whole. `setup.options` that choose a user
// (--user, --userns, --uidmap) replace the plan's.
std::vector<std::string> RunArguments(const EngineSetup& setup,
                                      const ContainerPlan& plan);

// Variables that tell the container's init (worker/shim/init.h) which
// directories were checked for `mounts`.
std::map<std::string, std::string> MountVariables(
    const std::vector<ContainerMount>& mounts);

// For --env-file, "NAME=value" lines: neither the host's list of processes nor
// the client's own environment shows them. What such a file cannot hold (a
// newline, a quote or "\" where some engines read a meaning, a long line) is
// an argument of RunArguments.
std::string EnvironmentFile(
    const std::map<std::string, std::string>& environment);

// InvalidArgument if an engine's command line cannot express the plan, such as
// ":" in the path of a mount, or if the image is not a registry name: an
// option, or a file of the host that engines would read with their own rights.
Status CheckPlan(const ContainerPlan& plan);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CONTAINER_RUN_ARGUMENTS_H_
