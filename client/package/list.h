// What goes into a package: a folder's files, checked.
#ifndef LOCKSTEP_CLIENT_PACKAGE_LIST_H_
#define LOCKSTEP_CLIENT_PACKAGE_LIST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client/package/pack.h"
#include "common/base/status.h"

namespace lockstep {

struct PackEntry {
  enum class Kind { kFile, kDirectory, kLink };
  // Below the folder: "a/b.py".
  std::string path;
  Kind kind = Kind::kFile;
  int64_t bytes = 0;        // Of a file.
  bool executable = false;  // Of a file.
  std::string target;       // Of a link: relative.
};

// The entries of `folder` (absolute, without links in it), sorted by path, so
// that a directory comes before what is in it. None that a node would refuse,
// where all their names get `prefix` (PackOptions). Errors as PackFolder's.
StatusOr<std::vector<PackEntry>> ListFolder(const std::string& folder,
                                            const std::string& prefix,
                                            const PackLimits& limits,
                                            const std::function<bool()>& stop);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_PACKAGE_LIST_H_
