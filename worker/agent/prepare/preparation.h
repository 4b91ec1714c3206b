// Gets one gang ready on this node: looks at the host, has its packages and
// images fetched, leases its ports, and looks for what it is to run.
//
// It may take as long as a package takes to come: not on the event loop.
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

namespace lockstep {

struct PreparationInput {
  GangSpec spec;
  // Its `spec`, `disk` and `shm` are filled in.
  PreflightInput preflight;
  // Borrowed; null: this node fetches none.
  PackageCache* packages = nullptr;
  // Null: it runs none.
  std::shared_ptr<ContainerEngine> containers;
  // Borrowed; there where `containers` is.
  ImageFetcher* images = nullptr;
  // CodeFolder of the gang.
  std::string code_directory;
  // The environment of pip and of questions to an interpreter.
  std::vector<std::string> tool_environment;
  ToolLimits tool_limits = {};
  std::vector<PortRange> port_ranges;
  // If false, the ports are only reserved against other daemons, for a program
  // that cannot bind a held port.
  bool hold_ports = true;
  // Borrowed; null: each question is asked.
  ModuleAnswers* module_answers = nullptr;
  std::function<StatusOr<DiskSpace>(const std::string&)> disk_space;
  // How long all images of the gang may take.
  Duration image_time = std::chrono::minutes(30);
  OutputIdentityOptions output;
};

struct Prepared {
  // Not OK: nothing is held and nothing is left.
  Status status;
  // One of each task in the spec's order; the master's and one of each service
  // where rank 0 is here.
  std::vector<PortLease> leases;
  std::vector<int32_t> ports;
  int32_t master_port = 0;
  std::map<std::string, int32_t> service_ports;
  std::vector<PackageCache::Lease> packages;
  // Directories of the host that its containers are shown, by the path that the
  // job gave; only where a user must be able to reach them.
  std::map<std::string, ReachedDirectory> mounts;
  // What each of its images is here.
  std::vector<ImageContent> images;
  // Sentences for the job's history.
  std::vector<std::string> notes;
  // The identity of the output directory; empty: there is none, or the identity
  // that this host must see is not known yet.
  std::string output_identity;
  TaskPreparation preparation;
};

// The user of the ranks in containers of `engine`: the task's user. Absent,
// where there is none: the user that the image names, as long as its root can
// do no more than this daemon.
std::optional<ContainerUser> UserIn(const ContainerEngine& engine,
                                    const std::optional<TaskUser>& user);

// Whether rank 0 is among the tasks of `spec`.
bool HasFirstRank(const GangSpec& spec);
// Whether packages or images have to come.
bool Fetches(const GangSpec& spec);
// Whether it has to wait for something from elsewhere: packages, images, or
// another host's file in the output directory.
bool WaitsForOthers(const GangSpec& spec);

// Calls `say` whenever a part begins, and about once a second with its
// progress.
Prepared Prepare(FileSystem* files, PreparationInput input,
                 const std::function<void(const TaskPreparation&)>& say,
                 Cancellation* cancel);

// Result of the check of the output directory of a prepared gang.
struct OutputCheck {
  Status status;
  std::string identity;
  TaskPreparation preparation;
};

// Looks for the identity that the spec names; `so_far` is the preparation to
// which the time is added. Blocks as OutputIdentity does.
OutputCheck CheckOutput(FileSystem* files, const PreparationInput& input,
                        const TaskPreparation& so_far,
                        const std::function<void(const TaskPreparation&)>& say,
                        Cancellation* cancel);

// Returns the cause to report for a failed preparation: refused for good, or
// retryable.
Cause RefusalOf(const Status& status);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_PREPARATION_H_
