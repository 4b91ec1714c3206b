// Operators' commands on a directory's store: `lockstep-coordinator verify
// DIR`, `restore FILE DIR`, `accept-loss DIR`.
#ifndef LOCKSTEP_SERVER_STORE_COMMANDS_H_
#define LOCKSTEP_SERVER_STORE_COMMANDS_H_

#include <iosfwd>

namespace lockstep::server {

// Shown at the end of the coordinator's --help.
inline constexpr char kStoreCommandsHelp[] =
    "Commands for the store in a directory:\n"
    "  lockstep-coordinator verify DIR        checks it and changes "
    "nothing\n"
    "  lockstep-coordinator restore FILE DIR  replaces it by a backup\n"
    "  lockstep-coordinator accept-loss DIR   continues without the lost "
    "commits";

// Returns true if argv[1] names one of these commands. It then ran, its output
// is in `out` and `err`, and *exit_code is set: 0, 1 if the store is damaged or
// the command failed, 2 for wrong arguments.
bool RunStoreCommand(int argc, char** argv, std::ostream& out,
                     std::ostream& err, int* exit_code);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_COMMANDS_H_
