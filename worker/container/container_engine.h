// Runs ranks in containers, through an engine's own command line.
//
// An engine is podman, or docker if its daemon answers. `ENGINE run` runs a
// rank's container, attached: this client is the rank's process, with a shim
// like any other, and its output is the rank's. The engine stops the container
// by its name, because the container's processes may not descend from ours.
#ifndef LOCKSTEP_WORKER_CONTAINER_CONTAINER_ENGINE_H_
#define LOCKSTEP_WORKER_CONTAINER_CONTAINER_ENGINE_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep::worker::container {

struct ContainerMount {
  std::string path;  // In the container, and on the host.
  bool read_only = false;
  // On the host, where it differs: without symbolic links.
  std::string source = {};
  // Identity of `source` at the check; inode 0: not checked.
  uint64_t device = 0;
  uint64_t inode = 0;

  bool operator==(const ContainerMount&) const = default;
};

struct ContainerUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;

  bool operator==(const ContainerUser&) const = default;
};

// Description of one rank's container.
struct ContainerPlan {
  std::string name;
  // Labels to find it again: the mark of the daemon's directory and the number
  // of that daemon's start.
  std::map<std::string, std::string> labels;
  std::string image;
  // Replaces ENTRYPOINT and CMD of the image. If empty, `args` follow
  // ENTRYPOINT and, unless empty, replace CMD.
  std::vector<std::string> command;
  std::vector<std::string> args;
  // Added to the image's own environment.
  std::map<std::string, std::string> environment;
  // A file with EnvironmentFile() that only the engine's client can read.
  std::string environment_file;
  // Empty: the image's own.
  std::string working_directory;
  std::vector<ContainerMount> mounts;
  // Host indices; the container sees no other GPUs.
  std::vector<int32_t> gpus;
  // 0: no limit. Ignored if the engine cannot enforce it (ContainerEngine).
  double cpus = 0;
  int64_t memory_bytes = 0;
  // Size of /dev/shm; 0: the engine's default.
  int64_t shm_bytes = 0;
  // Absent: the image's user.
  std::optional<ContainerUser> user;
};

// A command besides the program, in a container that runs.
struct ContainerCommand {
  std::string container;
  std::vector<std::string> argv;
  // Its streams are a terminal.
  bool terminal = false;
  // Added to the container's.
  std::map<std::string, std::string> environment;
};

// A local image.
struct ImageHere {
  ImageContent content;
  // It was not local before.
  bool fetched = false;
};

// "lockstep-JOB-gN-rR-ID", where ID makes it unique on the host.
std::string ContainerName(const std::string& job, uint64_t generation,
                          int32_t rank, const std::string& id);

inline constexpr char kContainerMarkLabel[] = "lockstep.mark";
inline constexpr char kContainerDaemonLabel[] = "lockstep.daemon";

struct FoundContainer {
  std::string name;
  std::string daemon;  // Its kContainerDaemonLabel.

  bool operator==(const FoundContainer&) const = default;
};

// Thread-safe. Calls to the engine block until the deadline at most
// (DeadlineExceeded). Errors include the engine's last message.
class ContainerEngine {
 public:
  virtual ~ContainerEngine() = default;

  // "podman 4.3.1".
  virtual const std::string& version() const = 0;
  // Absolute path of the client's program.
  virtual const std::string& program() const = 0;
  // Returns whether the engine can limit cores and memory here.
  virtual bool can_limit() const = 0;
  // Returns whether containers run our init, which reports start and end of the
  // program on descriptor 3 (worker/shim/init_report.h).
  virtual bool reports() const = 0;
  // Returns whether root in a container has no more rights on this host than
  // the user of the engine's client.
  virtual bool confines_root() const = 0;
  // Returns whether a container's processes descend from the client's.
  virtual bool in_tree() const = 0;

  // Returns the command that starts a rank; its environment is separate.
  virtual std::vector<std::string> RunArguments(
      const ContainerPlan& plan) const = 0;
  virtual std::vector<std::string> Environment() const = 0;
  // Returns the command that starts another one in a container, as the user and
  // in the directory of its program; its environment is Environment(). If the
  // engine reports(), our program keeps it there (worker/shim/session.h) and
  // needs the control socket as descriptor 3.
  virtual std::vector<std::string> ExecArguments(
      const ContainerCommand& command) const = 0;
  // Sends the signal that replaces "%" ("15").
  virtual std::vector<std::string> SignalArguments(
      const std::string& name) const = 0;
  // Prints "STATUS EXIT_CODE OOM_KILLED", e.g. "exited 137 true".
  virtual std::vector<std::string> InspectArguments(
      const std::string& name) const = 0;
  // Stops and removes the container; succeeds if it does not exist.
  virtual std::vector<std::string> RemoveArguments(
      const std::string& name) const = 0;

  // Ensures that a container of `wanted` can start immediately. Without an id,
  // any content of the name suffices; it is fetched if it is missing or may be
  // newer at its registry (no tag, or "latest"). With an id, only that content
  // does: it is found here by name or id, or fetched by its digest; the local
  // meaning of the name stays unchanged. `progress` gets a line from time to
  // time and returns false to cancel (Cancelled). FailedPrecondition if the
  // image is unavailable; if the name has another content here, the error names
  // both digests.
  virtual StatusOr<ImageHere> EnsureImage(
      const ImageContent& wanted, MonoTime deadline,
      const std::function<bool(const std::string&)>& progress) = 0;
  virtual Status Remove(const std::string& name, MonoTime deadline) = 0;
  // Lists all containers with this kContainerMarkLabel, running or not.
  virtual StatusOr<std::vector<FoundContainer>> List(const std::string& mark,
                                                     MonoTime deadline) = 0;
};

}  // namespace lockstep::worker::container

#endif  // LOCKSTEP_WORKER_CONTAINER_CONTAINER_ENGINE_H_
