// The site's table as a YAML file. It adds to common/training/machines_file.h:
//
//   runtimes:
//     tf2:
//       python: /opt/tf2/bin/python3
//       versions: ["2.8", "2.11"]      # trainingInput.runtimeVersion
//       allowIndex: false
//   defaultRuntime: tf2
//   strictVersions: false
//   images:
//     gcr.io/my-project/: registry.example:5000/
//   regions:
//     us-central1: {}
//     europe-west4: {pool: ghent, note: is taken by the nodes in Ghent}
//   defaultPool: general
//   visibility: owner                  # or cluster
#ifndef LOCKSTEP_COMMON_TRAINING_SITE_FILE_H_
#define LOCKSTEP_COMMON_TRAINING_SITE_FILE_H_

#include <string>

#include "common/base/status.h"
#include "common/training/site.h"

namespace lockstep {

// InvalidArgument: "SOURCE:LINE:COLUMN: runtimes.tf2.python: ...", or "SOURCE:
// ..." if the fault is not on one line.
StatusOr<Site> ParseSiteFile(const std::string& text,
                             const std::string& source);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_SITE_FILE_H_
