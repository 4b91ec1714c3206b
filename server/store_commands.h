// What an operator does with the store of a directory, beside running a
// coordinator on it: `lockstep-coordinator verify DIR`, `restore FILE DIR`,
// `accept-loss DIR`.
#ifndef LOCKSTEP_SERVER_STORE_COMMANDS_H_
#define LOCKSTEP_SERVER_STORE_COMMANDS_H_

#include <iosfwd>

namespace lockstep {

// For the end of the coordinator's --help.
inline constexpr char kStoreCommandsHelp[] =
    "Commands for the store in a directory:\n"
    "  lockstep-coordinator verify DIR        reads all of it, and changes "
    "nothing\n"
    "  lockstep-coordinator restore FILE DIR  puts a backup in its place\n"
    "  lockstep-coordinator accept-loss DIR   goes on without commits that are "
    "lost";

// True: argv[1] names one of these commands; it was carried out, what is to be
// said is on `out` and `err`, and *exit_code is set: 0, 1 for a store that is
// damaged or a command that failed, 2 for wrong arguments.
bool RunStoreCommand(int argc, char** argv, std::ostream& out,
                     std::ostream& err, int* exit_code);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STORE_COMMANDS_H_
