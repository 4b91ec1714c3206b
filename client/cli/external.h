// `lockstep NAME` for a NAME that is not a built-in command.
#ifndef LOCKSTEP_CLIENT_CLI_EXTERNAL_H_
#define LOCKSTEP_CLIENT_CLI_EXTERNAL_H_

#include <string>
#include <vector>

namespace lockstep::cli {

// Executes `dir`/lockstep-NAME with the arguments after NAME = args[index].
// Returns if there is no such program, or NAME has characters other than
// lower-case letters, digits and "-".
void RunExternal(const std::string& dir, const std::vector<std::string>& args,
                 size_t index);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_EXTERNAL_H_
