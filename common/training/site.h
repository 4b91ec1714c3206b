// The site's definitions for training jobs: machines, interpreters, image
// locations, regions. Pure values.
#ifndef LOCKSTEP_COMMON_TRAINING_SITE_H_
#define LOCKSTEP_COMMON_TRAINING_SITE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/model/job.h"
#include "common/training/machines.h"

namespace lockstep {

struct SiteRuntime {
  // Absolute, or looked up in PATH of the node.
  std::string python;
  // pip may fetch missing dependencies from its index.
  bool allow_index = false;
  // The runtimeVersions that select it; "2.*" is a prefix match.
  std::vector<std::string> versions;

  bool operator==(const SiteRuntime&) const = default;
};

struct SiteRegion {
  // A note for jobs that name the region, or empty.
  std::string note;
  // The pool for the region. Empty for the site's default.
  std::string pool;

  bool operator==(const SiteRegion&) const = default;
};

// The readers of a job's arguments, logs and files.
enum class Visibility {
  // Its owner and admins.
  kOwner,
  // All callers of the coordinator.
  kCluster,
};

struct Site {
  MachineTable machines;
  std::map<std::string, SiteRuntime> runtimes;
  // A key of `runtimes`. Empty for python3 in PATH of the node.
  std::string default_runtime;
  // Rejects an unknown runtimeVersion. Otherwise it gets the default runtime.
  bool strict_versions = false;
  // Image name prefix -> replacement. The longest match wins.
  std::map<std::string, std::string> images;
  std::map<std::string, SiteRegion> regions;
  // For unknown regions, regions without a pool, and jobs without a region.
  // Empty for all nodes.
  std::string default_pool;
  Visibility visibility = Visibility::kOwner;

  bool operator==(const Site&) const = default;
};

// Returns a site with only the shipped machines.
Site DefaultSite();

// InvalidArgument: "runtimes.tf2.python: ...". CheckMachineTable checks the
// machines.
Status CheckSite(const Site& site);

struct ResolvedRuntime {
  Runtime runtime;
  // The requested version is unknown, and the default was used.
  bool version_unknown = false;
};

// Returns the interpreter `name` (lockstep.runtime). Without a name, returns
// the one for `version` (trainingInput.runtimeVersion). Without both, returns
// the default.
StatusOr<ResolvedRuntime> ResolveRuntime(const Site& site,
                                         const std::string& name,
                                         const std::string& version);

// Returns `image` with the longest matching prefix replaced.
std::string RewriteImage(const std::string& image,
                         const std::map<std::string, std::string>& beginnings);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_SITE_H_
