// What a person should do about a failure whose cause is known by its words.
// Pure.
#ifndef LOCKSTEP_SERVER_CORE_HINTS_H_
#define LOCKSTEP_SERVER_CORE_HINTS_H_

#include <string_view>

#include "common/model/job.h"

namespace lockstep {

// Follows the sentence about `exit`: "; give ...", at most kMaxHint bytes.
// Empty: nothing is known that would help.
std::string_view HintFor(const JobSpec& spec, const ExitStatus& exit);

inline constexpr size_t kMaxHint = 300;

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_HINTS_H_
