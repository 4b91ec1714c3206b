// Runs ranks in containers, through an engine's own command line.
//
// An engine is podman, or docker where its daemon answers. A rank's container
// is run by `ENGINE run`, attached: that client is the rank's process, held by
// its shim like any other, its output is the rank's. What ends the container is
// the engine, by the container's name: its processes need not descend from us.
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

namespace lockstep {

struct ContainerMount {
  std::string path;  // In the container, and on the host.
  bool read_only = false;
  // On the host, where it differs: without symbolic links.
  std::string source = {};
  // Of `source` as it was looked at; inode 0: it was not.
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

// What one rank's container shall be.
struct ContainerPlan {
  std::string name;
  // To find it again: by the mark of the daemon's directory and the number of
  // that daemon's start.
  std::map<std::string, std::string> labels;
  std::string image;
  // Replaces ENTRYPOINT and CMD of the image; empty: `args` follow ENTRYPOINT
  // and, where there are any, replace CMD.
  std::vector<std::string> command;
  std::vector<std::string> args;
  // Beside what the image itself sets.
  std::map<std::string, std::string> environment;
  // A file, readable for the engine's client alone, with EnvironmentFile().
  std::string environment_file;
  // Empty: the image's own.
  std::string working_directory;
  std::vector<ContainerMount> mounts;
  // By their number on the host. No other is there in the container.
  std::vector<int32_t> gpus;
  // 0: no limit. Not applied where the engine cannot (ContainerEngine).
  double cpus = 0;
  int64_t memory_bytes = 0;
  // Of /dev/shm; 0: what the engine gives.
  int64_t shm_bytes = 0;
  // Absent: the image's user.
  std::optional<ContainerUser> user;
};

// An image that is here.
struct ImageHere {
  ImageContent content;
  // It was not, before.
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
  // The client's program, an absolute path.
  virtual const std::string& program() const = 0;
  // Whether limits of cores and memory can be given to it here.
  virtual bool can_limit() const = 0;
  // Whether containers run with our own first process, which reports start and
  // end of the program on descriptor 3 (worker/shim/init_report.h).
  virtual bool reports() const = 0;
  // Whether root in a container has no more rights on this host than who runs
  // the engine's client.
  virtual bool confines_root() const = 0;
  // Whether a container's processes descend from the client's.
  virtual bool in_tree() const = 0;

  // What to start for a rank, and with which environment.
  virtual std::vector<std::string> RunArguments(
      const ContainerPlan& plan) const = 0;
  virtual std::vector<std::string> Environment() const = 0;
  // Sends the signal that replaces "%" ("15").
  virtual std::vector<std::string> SignalArguments(
      const std::string& name) const = 0;
  // Prints "STATUS EXIT_CODE OOM_KILLED", e.g. "exited 137 true".
  virtual std::vector<std::string> InspectArguments(
      const std::string& name) const = 0;
  // Ends and removes the container; succeeds where there is none.
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
  // All with this kContainerMarkLabel, running or not.
  virtual StatusOr<std::vector<FoundContainer>> List(const std::string& mark,
                                                     MonoTime deadline) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_CONTAINER_CONTAINER_ENGINE_H_
