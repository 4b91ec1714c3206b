// Checks that this host sees the same output directory as the host of rank 0,
// by the identity file in it (common/model/output_identity.h).
#ifndef LOCKSTEP_WORKER_AGENT_PREPARE_OUTPUT_IDENTITY_H_
#define LOCKSTEP_WORKER_AGENT_PREPARE_OUTPUT_IDENTITY_H_

#include <functional>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/agent/prepare/preflight.h"
#include "worker/package/cancellation.h"

namespace lockstep::worker::agent {

// Reason of a refusal: hosts see different directories.
inline constexpr char kOutputNotShared[] = "OUTPUT_NOT_SHARED";
// Reason of a refusal: the directory that the job has written to is missing.
inline constexpr char kOutputMissing[] = "OUTPUT_MISSING";

struct OutputIdentityOptions {
  // Time for another host's file to become visible here: NFS clients cache a
  // missing file for up to a minute.
  Duration patience = std::chrono::seconds(60);
  Duration poll = std::chrono::milliseconds(200);
};

struct OutputIdentityInput {
  std::string directory;
  // Required content of the file. If empty, this host has rank 0 and reads or
  // creates the file.
  std::string expected;
  bool has_first_rank = false;
  // Reads and writes as this user; absent: as the daemon.
  std::optional<TaskUser> user;
  OutputIdentityOptions options;
};

// Returns the content of the directory's identity file. Blocks as long as the
// file system does, and for `options.patience` while it waits for another
// host's file; calls `waiting` on each retry.
//   FailedPrecondition, with the reason OUTPUT_NOT_SHARED: this host does not
//                       see the file, or sees another directory's
//   FailedPrecondition, with the reason OUTPUT_MISSING: an identity is
//                       expected on the host of rank 0, and its file is
//                       missing, damaged, unreadable or another directory's.
//                       No file is created
//   FailedPrecondition  the file is damaged, or cannot be read or created
//   Unavailable         retry: the file system does not work
//   Cancelled           by `cancel`
StatusOr<std::string> OutputIdentity(FileSystem* files,
                                     const OutputIdentityInput& input,
                                     const std::function<void()>& waiting,
                                     package::Cancellation* cancel);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PREPARE_OUTPUT_IDENTITY_H_
