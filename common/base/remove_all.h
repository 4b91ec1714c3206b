// Removes a directory while other processes may write to it.
#ifndef LOCKSTEP_COMMON_BASE_REMOVE_ALL_H_
#define LOCKSTEP_COMMON_BASE_REMOVE_ALL_H_

#include <string>

#include "common/base/status.h"

namespace lockstep {

// Removes `path` and its contents. A missing path is OK. Below `path` no name
// is resolved from the top again and no symbolic link is followed, whatever the
// directory's owner changes meanwhile. So root, removing for a user, never
// removes anything outside `path`. Memory and the number of descriptors are
// bounded at any depth. FailedPrecondition if the directory fills faster than
// it empties.
Status RemoveTree(const std::string& path);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_REMOVE_ALL_H_
