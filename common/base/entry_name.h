// Names of files in an archive, and what a link in it may point to: one set of
// rules for who packs and for who unpacks, so that nobody packs what every
// other refuses. Pure.
#ifndef LOCKSTEP_COMMON_BASE_ENTRY_NAME_H_
#define LOCKSTEP_COMMON_BASE_ENTRY_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// The parts of an entry's name, without "." and empty ones; none: the folder
// itself. InvalidArgument says what is wrong with it.
StatusOr<std::vector<std::string>> SplitEntryName(std::string_view name);
// Whether a symbolic link that is `depth` folders below the top may point to
// `target`: it is relative, its ".." come first, and are `depth` at most. With
// every link like that, no chain of them leaves the folder.
Status CheckLinkTarget(std::string_view target, size_t depth);
// `name` in quotes, fit for a sentence whatever it holds.
std::string QuoteEntry(std::string_view name);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_ENTRY_NAME_H_
