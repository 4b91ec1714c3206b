// Advice for failures whose cause can be recognized by their message. Pure.
#ifndef LOCKSTEP_SERVER_CORE_HINTS_H_
#define LOCKSTEP_SERVER_CORE_HINTS_H_

#include <string_view>

#include "common/model/job.h"

namespace lockstep::server {

// Returns text to append to the sentence about `exit`: "; give ...", at most
// kMaxHint bytes. Empty if there is no advice.
std::string_view HintFor(const JobSpec& spec, const ExitStatus& exit);

inline constexpr size_t kMaxHint = 300;

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_HINTS_H_
