// Unpacks an untrusted archive into a folder, and nowhere else.
//
// Refuses, with a sentence that names the entry and the reason, every name that
// could reach out of the folder: absolute names, "..", links whose target lies
// outside, links on the way to a file, a second entry of the same name. Also
// refuses devices, fifos, sockets, and archives that exceed the limits. Nothing
// is written through a link: each folder on the way is opened without following
// links.
#ifndef LOCKSTEP_WORKER_PACKAGE_UNPACK_H_
#define LOCKSTEP_WORKER_PACKAGE_UNPACK_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/entry_name.h"
#include "common/base/status.h"
#include "worker/package/byte_source.h"
#include "worker/package/cancellation.h"

namespace lockstep::worker::package {

// The owner of a package's files and programs.
struct PackageUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

struct UnpackOptions {
  // nullopt: the owner is the caller.
  std::optional<PackageUser> user;
  uint64_t max_bytes = uint64_t{32} << 30;  // Total of all unpacked files.
  // Includes the parent folders that are created.
  uint64_t max_entries = 1'000'000;
  // Limit for the whole unpacking.
  Duration most = std::chrono::minutes(30);
};

// Unpacks the tar `bytes` into `directory`, which exists and is empty.
// Files get mode 0644, or 0755 if they are executable; folders get 0755.
// After an error the unpacked part stays; the caller removes the folder.
//   InvalidArgument    an entry is refused by name, or it is over the limits
//   DataLoss           it is not a tar archive, or it is damaged
//   ResourceExhausted  the disk is full
//   DeadlineExceeded   it took longer than the limit
//   Cancelled
Status UnpackTar(ByteSource* bytes, const std::string& directory,
                 const UnpackOptions& options, Cancellation* cancel);
// Does the same for a file, and decompresses it if it begins as gzip.
Status UnpackFile(const std::string& path, const std::string& directory,
                  const UnpackOptions& options, Cancellation* cancel);

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_UNPACK_H_
