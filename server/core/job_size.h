// Estimates the memory of a job within some per cent, which is enough for
// limits.
#ifndef LOCKSTEP_SERVER_CORE_JOB_SIZE_H_
#define LOCKSTEP_SERVER_CORE_JOB_SIZE_H_

#include <cstddef>
#include <vector>

#include "server/core/job.h"

namespace lockstep::server {

// Size of what the user wrote, in bytes.
size_t SpecBytes(const JobSpec& spec);
// In bytes, with its tasks, attempts and events, without its SharedParts.
size_t JobBytes(const Job& job);

// A part that the versions of a job share. It counts once for all versions.
struct SharedPart {
  // See Shared::identity; never null.
  const void* identity = nullptr;
  size_t bytes = 0;
};
std::vector<SharedPart> SharedParts(const Job& job);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_JOB_SIZE_H_
