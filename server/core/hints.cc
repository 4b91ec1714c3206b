#include "server/core/hints.h"

#include <signal.h>

#include <algorithm>
#include <iterator>

namespace lockstep::server {
namespace {

bool InContainer(const JobSpec& spec) {
  return std::any_of(
      spec.roles.begin(), spec.roles.end(),
      [](const RoleSpec& role) { return role.container.has_value(); });
}

bool Always(const JobSpec&, const ExitStatus&) { return true; }

bool AskedForNoGpu(const JobSpec& spec, const ExitStatus&) {
  return std::all_of(
      spec.roles.begin(), spec.roles.end(),
      [](const RoleSpec& role) { return role.resources.gpus == 0; });
}

// For a package the flag has no effect.
bool NamesMasterByRuntime(const JobSpec& spec, const ExitStatus&) {
  return spec.environment_options.master_in_tf_config && !InContainer(spec) &&
         !spec.packages.empty();
}

bool NamesMaster(const JobSpec& spec, const ExitStatus&) {
  return spec.environment_options.master_in_tf_config;
}

// If another process took a leased port, other ports help.
bool ChosePortItself(const JobSpec&, const ExitStatus& exit) {
  return exit.reason != Reason::kPortTaken;
}

struct Hint {
  // Any of these matches; there is at least one.
  std::string_view words[8];
  bool (*applies)(const JobSpec&, const ExitStatus&);
  std::string_view text;
};

// The first match counts.
constexpr Hint kHints[] = {
    {{"Disallowed task type found in cluster spec"},
     NamesMasterByRuntime,
     "; TensorFlow 2 has no task type master, but runtimeVersion 1.x "
     "makes the first task master: give a 2.x version, or lockstep.runtime"},
    {{"Disallowed task type found in cluster spec"},
     NamesMaster,
     "; TensorFlow 2 has no task type master, but useChiefInTfConfig is "
     "false: set useChiefInTfConfig: true, or leave it out"},
    {{"PerReplica"},
     Always,
     "; Keras 3 cannot fit under MultiWorkerMirroredStrategy: give --env "
     "TF_USE_LEGACY_KERAS=1 and install the package tf_keras"},
    {{"No CUDA GPUs are available", "Found no NVIDIA driver",
      "no CUDA-capable device is detected", "CUDA_ERROR_NO_DEVICE",
      "only supported with GPUs, no GPUs found",
      "Unable to initialize backend 'cuda'"},
     AskedForNoGpu,
     "; the job requests no GPU: give --gpus N"},
    {{"gs://", "scheme 'gs' not implemented", "storage.googleapis.com",
      "DefaultCredentialsError"},
     Always,
     "; Google Cloud Storage is unreachable from here: give a path that "
     "the hosts share"},
    {{"ddress already in use", "EADDRINUSE", "Errno 98", "errno: 98"},
     ChosePortItself,
     "; the program chose this port itself: use MASTER_PORT, which is leased "
     "for the job, or port 0"},
    {{"ignal: Bus error", "unable to open shared memory object </",
      "Error while creating shared memory segment /dev/shm/"},
     Always,
     "; /dev/shm of the node may be full: `df -h /dev/shm` there shows it, "
     "`mount -o remount,size=8G /dev/shm` enlarges it; num_workers=0 of a "
     "DataLoader needs none"},
};

constexpr std::string_view kBusError =
    "; SIGBUS often means a full /dev/shm or a truncated mapped file: "
    "`df -h /dev/shm` on the node shows it, `mount -o remount,size=8G "
    "/dev/shm` enlarges it; num_workers=0 of a DataLoader needs none";

bool IsBusError(const ExitStatus& exit) {
  switch (exit.how) {
    case ExitStatus::How::kSignal:
      return exit.value == SIGBUS;
    case ExitStatus::How::kCode:
      // The shell's exit code.
      return exit.value == 128 + SIGBUS;
    case ExitStatus::How::kExecErrno:
      return false;
  }
  return false;
}

bool HasWordsOf(const Hint& hint, std::string_view message) {
  return std::any_of(std::begin(hint.words), std::end(hint.words),
                     [&](std::string_view words) {
                       return !words.empty() &&
                              message.find(words) != std::string_view::npos;
                     });
}

}  // namespace

std::string_view HintFor(const JobSpec& spec, const ExitStatus& exit) {
  for (const Hint& hint : kHints) {
    if (HasWordsOf(hint, exit.message) && hint.applies(spec, exit)) {
      return hint.text;
    }
  }
  return IsBusError(exit) ? kBusError : "";
}

}  // namespace lockstep::server
