// The rules for the names of archive entries and the targets of links. Packing
// and unpacking share them, so every archive that is packed can be unpacked.
// Pure.
#ifndef LOCKSTEP_COMMON_BASE_ENTRY_NAME_H_
#define LOCKSTEP_COMMON_BASE_ENTRY_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// Returns the parts of an entry's name without "." and empty ones. No part
// means the folder itself. InvalidArgument describes the fault.
StatusOr<std::vector<std::string>> SplitEntryName(std::string_view name);
// Checks that a symbolic link `depth` folders below the top may point to
// `target`. The target must be relative, and its ".." must come first and
// number at most `depth`. Then no chain of links leaves the folder.
Status CheckLinkTarget(std::string_view target, size_t depth);
// Quotes `name` and replaces what does not fit in a sentence.
std::string QuoteEntry(std::string_view name);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_ENTRY_NAME_H_
