// Prepares one gang on this node: checks the host, fetches its packages and
// images, leases its ports, and finds its programs.
//
// It may take as long as a download: do not call it on the event loop.
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "common/model/assignment.h"
#include "worker/agent/ports/port_lease.h"
#include "worker/agent/prepare/module_answers.h"
#include "worker/agent/prepare/output_identity.h"
#include "worker/agent/prepare/preflight.h"
#include "worker/container/container_engine.h"
#include "worker/container/image_fetcher.h"
#include "worker/container/reach.h"
#include "worker/package/cancellation.h"
#include "worker/package/code_folder.h"

namespace lockstep::worker::agent {

struct PreparationInput {
  GangSpec spec;
  // Its `spec`, `disk` and `shm` are filled in.
  PreflightInput preflight;
  // Borrowed; null: this node fetches no packages.
  package::PackageCache* packages = nullptr;
  // Null: this node runs no containers.
  std::shared_ptr<container::ContainerEngine> containers;
  // Borrowed; set if `containers` is.
  container::ImageFetcher* images = nullptr;
  // CodeFolder of the gang.
  std::string code_directory;
  // Environment of pip and of queries to an interpreter.
  std::vector<std::string> tool_environment;
  package::ToolLimits tool_limits = {};
  std::vector<PortRange> port_ranges;
  // If false, the ports are only reserved against other daemons, for a program
  // that cannot bind a held port.
  bool hold_ports = true;
  // Borrowed; null: no cache.
  ModuleAnswers* module_answers = nullptr;
  std::function<StatusOr<DiskSpace>(const std::string&)> disk_space;
  // Limit for fetching all images of the gang.
  Duration image_time = std::chrono::minutes(30);
  OutputIdentityOptions output;
};

struct Prepared {
  // If not OK, nothing is held or left behind.
  Status status;
  // One per task in the spec's order; then the master's and one per service if
  // rank 0 is here.
  std::vector<PortLease> leases;
  std::vector<int32_t> ports;
  int32_t master_port = 0;
  std::map<std::string, int32_t> service_ports;
  std::vector<package::PackageCache::Lease> packages;
  // Host directories to mount into its containers, by the path in the job; only
  // if a user must be able to reach them.
  std::map<std::string, container::ReachedDirectory> mounts;
  // Local content of each of its images.
  std::vector<ImageContent> images;
  // Sentences for the job's history.
  std::vector<std::string> notes;
  // The identity of the output directory; empty if there is no directory or the
  // required identity is not known yet.
  std::string output_identity;
  TaskPreparation preparation;
};

// Returns the user of ranks in containers of `engine`: the task's user. Absent
// without one: the image's user, if its root has no more rights than this
// daemon.
std::optional<container::ContainerUser> UserIn(
    const container::ContainerEngine& engine,
    const std::optional<TaskUser>& user);

// Whether rank 0 is among the tasks of `spec`.
bool HasFirstRank(const GangSpec& spec);
// Returns whether packages or images must be fetched.
bool Fetches(const GangSpec& spec);
// Returns whether the preparation needs something remote: packages, images, or
// another host's file in the output directory.
bool WaitsForOthers(const GangSpec& spec);

// Calls `say` whenever a part begins, and about once a second with its
// progress.
Prepared Prepare(FileSystem* files, PreparationInput input,
                 const std::function<void(const TaskPreparation&)>& say,
                 package::Cancellation* cancel);

// Result of the check of the output directory of a prepared gang.
struct OutputCheck {
  Status status;
  std::string identity;
  TaskPreparation preparation;
};

// Checks the identity in the spec; adds the time to `so_far`, the preparation.
// Blocks as OutputIdentity does.
OutputCheck CheckOutput(FileSystem* files, const PreparationInput& input,
                        const TaskPreparation& so_far,
                        const std::function<void(const TaskPreparation&)>& say,
                        package::Cancellation* cancel);

// Returns the cause to report for a failed preparation: refused for good, or
// retryable.
Cause RefusalOf(const Status& status);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_H_
