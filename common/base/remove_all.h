// Removing a directory that others may write to while it goes.
#ifndef LOCKSTEP_COMMON_BASE_REMOVE_ALL_H_
#define LOCKSTEP_COMMON_BASE_REMOVE_ALL_H_

#include <string>

#include "common/base/status.h"

namespace lockstep {

// Removes `path` and what is in it; missing is OK. Below `path` no name is ever
// looked up again from the top and no symbolic link is followed, whatever the
// owner of a directory puts in its place meanwhile: what root removes for a
// user is never outside `path`. Any depth, in bounded memory and with a bounded
// number of descriptors. A directory that is filled up faster than it empties
// is given up with FailedPrecondition.
Status RemoveTree(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_REMOVE_ALL_H_
