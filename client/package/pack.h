// Makes the uploaded file of a job's code: a folder packed into a gzipped tar,
// or an sdist or wheel unchanged.
//
// Packing is deterministic: sorted names, zero times and owners, modes 0644 and
// 0755, no gzip time stamp. So an unchanged package has the same digest and is
// not uploaded again.
#ifndef LOCKSTEP_CLIENT_PACKAGE_PACK_H_
#define LOCKSTEP_CLIENT_PACKAGE_PACK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep::cli {

struct PackLimits {
  int64_t entries = 100'000;
  // The sum of all files before compression.
  int64_t bytes = int64_t{1} << 30;
};

struct PackOptions {
  // Prepended to every name: "trainer" in "trainer/task.py". If it is empty,
  // the folder's content is at the top.
  std::string prefix;
  PackLimits limits;
  // Polled; true ends packing with Cancelled. May be null.
  std::function<bool()> stopped;
};

// A package with its bytes. Owns the descriptor of an unnamed file, which
// disappears with it.
struct PackedPackage {
  Package package;
  Fd file;
  // For a folder: the number of packed entries.
  int64_t entries = 0;
  int64_t unpacked_bytes = 0;
};

// Packs `folder` without the files that .gcloudignore excludes. The name is
// "PREFIX.tar.gz" (or the folder's name), with unusual characters replaced.
// Errors:
//   NotFound           there is no such folder
//   InvalidArgument    it is not a folder, is empty, or holds an entry that
//                      is not allowed: a socket, pipe or device, a link that
//                      leaves the folder or dangles, a name that is not
//                      UTF-8 or that nodes reject (entry_name.h); names it
//   ResourceExhausted  over the limits, or no space for the packed file
//   PermissionDenied   a file is unreadable
//   Aborted            a file became shorter while it was read
StatusOr<PackedPackage> PackFolder(const std::string& folder,
                                   const PackOptions& options);

// Opens a .tar.gz (sdist) or .whl unchanged. Errors: NotFound; InvalidArgument
// if its name or first bytes are neither, or pip rejects its name;
// ResourceExhausted if it is over the limit.
StatusOr<PackedPackage> OpenPackageFile(const std::string& path,
                                        const PackLimits& limits);

// Reads up to `size` bytes at `offset`; 0 at its end.
StatusOr<size_t> ReadPackage(const PackedPackage& package, uint64_t offset,
                             char* buffer, size_t size);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_PACKAGE_PACK_H_
