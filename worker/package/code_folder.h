// The code of one gang on one node: its packages, fetched, unpacked and
// installed.
//
//   DIR/tree-N/      a tree, unpacked
//   DIR/site/        sdists and wheels, installed
//   DIR/files/N/     these, under their own names
//   DIR/scratch/     HOME and TMPDIR of pip
//
// The task's user owns trees and site.
#ifndef LOCKSTEP_WORKER_PACKAGE_CODE_FOLDER_H_
#define LOCKSTEP_WORKER_PACKAGE_CODE_FOLDER_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/job.h"
#include "worker/package/cancellation.h"
#include "worker/package/package_cache.h"
#include "worker/package/tool.h"
#include "worker/package/unpack.h"

namespace lockstep::worker::package {

struct CodeFolderInput {
  std::string directory;
  std::vector<Package> packages;
  Runtime runtime;
  // The runtime's interpreter; "" if none is needed.
  std::string python;
  std::optional<PackageUser> user;
  std::vector<std::string> env;  // Of pip.
  ToolLimits limits = {};        // Of pip, too.
  uint64_t max_bytes = uint64_t{32} << 30;
};

struct CodeFolder {
  // CodePathOf(directory, packages).
  std::vector<std::string> path;
  // Held until the gang is over.
  std::vector<PackageCache::Lease> leases;
  // Sentences for the job's history.
  std::vector<std::string> notes = {};
};

// Creates the folder; leaves nothing on an error. Reports progress to `say`, as
// in "trainer-0.1.tar.gz: 3 of 12 MiB". Errors are those of the parts, with the
// package's name; InvalidArgument and DataLoss are the package's fault.
StatusOr<CodeFolder> MakeCodeFolder(
    const CodeFolderInput& input, PackageCache* cache,
    const std::function<void(const std::string&)>& say, Cancellation* cancel);

// Returns the entries to prepend to PYTHONPATH, in this order. Pure.
std::vector<std::string> CodePathOf(const std::string& directory,
                                    const std::vector<Package>& packages);

// Returns a safe file name for `package` that pip can read.
std::string SafeFileName(const Package& package);

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_CODE_FOLDER_H_
