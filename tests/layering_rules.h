// The include rules of CONTRIBUTING.md: which folder may include which, what
// PURE files keep away from, where a foreign library may be known, header
// guards. The tables are in layering_rules.cc; a new folder needs a line there.
#ifndef LOCKSTEP_TESTS_LAYERING_RULES_H_
#define LOCKSTEP_TESTS_LAYERING_RULES_H_

#include <string>
#include <vector>

namespace lockstep {

// What is wrong with the file of this path (from the root) and text, in
// sentences that begin with the path. Pure; looks at the text only.
std::vector<std::string> LayeringViolations(const std::string& path,
                                            const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_LAYERING_RULES_H_
