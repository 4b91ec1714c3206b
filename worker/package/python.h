// Runs the interpreter during the preparation of a job with Python code. All of
// it runs as the task's user with a time limit. None of it imports the job's
// code, except pip for an sdist.
#ifndef LOCKSTEP_WORKER_PACKAGE_PYTHON_H_
#define LOCKSTEP_WORKER_PACKAGE_PYTHON_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/package/cancellation.h"
#include "worker/package/tool.h"
#include "worker/package/unpack.h"

namespace lockstep::worker::package {

struct Python {
  // Absolute path, or a name in the daemon's PATH.
  std::string program;
  std::optional<PackageUser> user;
  // Complete environment; HOME and TMPDIR, below `scratch`, are added.
  std::vector<std::string> env;
  // A folder of the task's user.
  std::string scratch;
  ToolLimits limits = {};
  Duration install_timeout = std::chrono::minutes(10);
  Duration question_timeout = std::chrono::seconds(60);
};

// Runs pip install --target `target` for sdists and wheels under their own
// names. Without `allow_index` nothing is downloaded, including requirements.
// FailedPrecondition: pip failed, with its last line.
Status InstallDistributions(const Python& python,
                            const std::vector<std::string>& files,
                            const std::string& target, bool allow_index,
                            Cancellation* cancel);

// Checks that all requirements of the distributions in `target` are met by the
// folders `path` or the interpreter. FailedPrecondition names the missing ones.
Status CheckRequirements(const Python& python, const std::string& target,
                         const std::vector<std::string>& path,
                         Cancellation* cancel);

// Checks that `python -m module` finds its module in the folders `path` or in
// the interpreter. FailedPrecondition names the missing module and similar
// ones.
Status CheckModule(const Python& python, const std::string& module,
                   const std::vector<std::string>& path, Cancellation* cancel);

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_PYTHON_H_
