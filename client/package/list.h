// Lists and checks the files of a package.
#ifndef LOCKSTEP_CLIENT_PACKAGE_LIST_H_
#define LOCKSTEP_CLIENT_PACKAGE_LIST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/package/pack.h"
#include "common/base/status.h"

namespace lockstep::cli {

struct PackEntry {
  enum class Kind { kFile, kDirectory, kLink };
  // Relative to the folder: "a/b.py".
  std::string path;
  Kind kind = Kind::kFile;
  int64_t bytes = 0;        // For a file.
  bool executable = false;  // For a file.
  std::string target;       // For a link: relative.
};

// Returns the entries of `folder` (absolute, without links in its path) sorted
// by path, so that a directory precedes its contents. With `prefix`
// (PackOptions), a node accepts all names. Errors as PackFolder's.
StatusOr<std::vector<PackEntry>> ListFolder(const std::string& folder,
                                            const std::string& prefix,
                                            const PackLimits& limits,
                                            const std::function<bool()>& stop);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_PACKAGE_LIST_H_
