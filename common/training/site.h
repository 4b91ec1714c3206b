// What the words of a training job stand for at this site: its machines, its
// interpreters, where its images are, its regions. Pure values.
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
  // pip may fetch what a package lacks from its index.
  bool allow_index = false;
  // runtimeVersions that mean this one; "2.*" means all that begin so.
  std::vector<std::string> versions;

  bool operator==(const SiteRuntime&) const = default;
};

struct SiteRegion {
  // Said to whoever names it; empty: nothing is.
  std::string note;
  // Of the nodes that stand for it; empty: the site's default.
  std::string pool;

  bool operator==(const SiteRegion&) const = default;
};

// Who may read what a job is called with, says and writes.
enum class Visibility {
  // Its owner and admins.
  kOwner,
  // Everybody who may call the coordinator.
  kCluster,
};

struct Site {
  MachineTable machines;
  std::map<std::string, SiteRuntime> runtimes;
  // A name of `runtimes`; empty: python3 in PATH of the node.
  std::string default_runtime;
  // Refuses a runtimeVersion that is nobody's; else the default takes it.
  bool strict_versions = false;
  // Beginning of an image's name -> what stands there instead. The longest
  // counts.
  std::map<std::string, std::string> images;
  std::map<std::string, SiteRegion> regions;
  // Of regions that are not known or name none, and of jobs without a region;
  // empty: all nodes.
  std::string default_pool;
  Visibility visibility = Visibility::kOwner;

  bool operator==(const Site&) const = default;
};

// The shipped machines, and nothing else.
Site DefaultSite();

// InvalidArgument: "runtimes.tf2.python: ...". The machines are checked by
// CheckMachineTable.
Status CheckSite(const Site& site);

struct ResolvedRuntime {
  Runtime runtime;
  // A version was asked for that is nobody's, and the default took it.
  bool version_unknown = false;
};

// The interpreter named `name` (lockstep.runtime); without a name the one that
// stands for `version` (trainingInput.runtimeVersion), and without both the
// default.
StatusOr<ResolvedRuntime> ResolveRuntime(const Site& site,
                                         const std::string& name,
                                         const std::string& version);

// `image` with the longest of the beginnings replaced.
std::string RewriteImage(const std::string& image,
                         const std::map<std::string, std::string>& beginnings);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_SITE_H_
