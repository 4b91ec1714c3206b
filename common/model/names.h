// The syntax of names. Pure.
#ifndef LOCKSTEP_COMMON_MODEL_NAMES_H_
#define LOCKSTEP_COMMON_MODEL_NAMES_H_

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// [A-Za-z][A-Za-z0-9_-]{0,62}
bool IsJobName(std::string_view name);
// [a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?
bool IsNodeName(std::string_view name);
// [a-z0-9-]{1,63}
bool IsPoolName(std::string_view name);
// [A-Za-z_][A-Za-z0-9_]{0,255}
bool IsEnvironmentName(std::string_view name);
// A name that lockstep or the contracts of the frameworks set, so that a job
// may not: RANK, TF_CONFIG, LD_*, LOCKSTEP_*, ...
bool IsReservedEnvironmentName(std::string_view name);

// Returns the candidate nearest to `name` by edit distance if a typo is likely,
// otherwise "". For "did you mean".
std::string Nearest(std::string_view name,
                    const std::vector<std::string>& candidates);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_NAMES_H_
