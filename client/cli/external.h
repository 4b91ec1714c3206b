// `lockstep NAME` for a NAME that is no command of ours.
#ifndef LOCKSTEP_CLIENT_CLI_EXTERNAL_H_
#define LOCKSTEP_CLIENT_CLI_EXTERNAL_H_

#include <string>
#include <vector>

namespace lockstep {

// Becomes `dir`/lockstep-NAME with what follows NAME = args[index], if there
// is such a program; else returns. Names with anything but lower-case letters,
// digits and "-" are no programs of ours.
void RunExternal(const std::string& dir, const std::vector<std::string>& args,
                 size_t index);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_EXTERNAL_H_
