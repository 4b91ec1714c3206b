// Code that a job brings, as the one file that is uploaded: a folder packed
// into a gzipped tar, or an sdist or wheel as it is.
//
// The same folder gives the same bytes wherever and whenever it is packed:
// names in order, times and owners zero, modes 0644 and 0755, no time stamp of
// gzip. So a package that did not change is known by its digest and is not
// sent again.
#ifndef LOCKSTEP_CLIENT_PACKAGE_PACK_H_
#define LOCKSTEP_CLIENT_PACKAGE_PACK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep {

struct PackLimits {
  int64_t entries = 100'000;
  // Of all files together, before compression.
  int64_t bytes = int64_t{1} << 30;
};

struct PackOptions {
  // Made the first part of every name: "trainer" of "trainer/task.py". Empty:
  // the folder's content stands at the top.
  std::string prefix;
  PackLimits limits;
  // Asked now and then; true ends it with Cancelled. May be null.
  std::function<bool()> stopped;
};

// A package with its bytes at hand. Owns the descriptor; what it packed lies
// in a file without a name and is gone with it.
struct PackedPackage {
  Package package;
  Fd file;
  // Of a folder: what went into it.
  int64_t entries = 0;
  int64_t unpacked_bytes = 0;
};

// Packs `folder` without what its .gcloudignore leaves out. Its name is
// "PREFIX.tar.gz" (without a prefix, the folder's), odd characters replaced.
// Errors:
//   NotFound           there is no such folder
//   InvalidArgument    it is no folder, is empty, or holds what no package may:
//                      a socket, pipe or device, a link that leaves the folder
//                      or leads nowhere, a name that is not UTF-8, one that no
//                      node would unpack (entry_name.h): names it
//   ResourceExhausted  more than the limits; or no room for the packed file
//   PermissionDenied   a file cannot be read
//   Aborted            a file became shorter while it was read
StatusOr<PackedPackage> PackFolder(const std::string& folder,
                                   const PackOptions& options);

// A .tar.gz (sdist) or .whl as it is.
// Errors: NotFound; InvalidArgument: it is neither, by its name or its first
// bytes, or its name is none that pip takes; ResourceExhausted: larger than
// the limit.
StatusOr<PackedPackage> OpenPackageFile(const std::string& path,
                                        const PackLimits& limits);

// Up to `size` bytes of it from `offset`; 0 at its end.
StatusOr<size_t> ReadPackage(const PackedPackage& package, uint64_t offset,
                             char* buffer, size_t size);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_PACKAGE_PACK_H_
