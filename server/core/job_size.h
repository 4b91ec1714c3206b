// About how much memory a job takes: for limits, where being right within some
// per cent is enough.
#ifndef LOCKSTEP_SERVER_CORE_JOB_SIZE_H_
#define LOCKSTEP_SERVER_CORE_JOB_SIZE_H_

#include <cstddef>
#include <vector>

#include "server/core/job.h"

namespace lockstep {

// What its user wrote, in bytes.
size_t SpecBytes(const JobSpec& spec);
// With its tasks, attempts and events, and without its SharedParts.
size_t JobBytes(const Job& job);

// What the versions of a job share: to be counted once, however many there are.
struct SharedPart {
  // See Shared::identity; never null.
  const void* identity = nullptr;
  size_t bytes = 0;
};
std::vector<SharedPart> SharedParts(const Job& job);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_JOB_SIZE_H_
