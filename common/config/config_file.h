// --config FILE: a daemon's flags as a YAML file.
//
//   # /etc/lockstep/worker.yaml
//   coordinator: c.example:7443
//   gpus: 4
//
// A key is a flag's name without its leading dashes, with "_" or "-" between
// words. A value is what the flag would be given (true or false for one without
// value). What is on the command line
// wins. Refused, with file and line: a key that is no flag (the nearest is
// named), one that is there twice, one without value, a map, broken YAML.
// A value that the flag itself refuses is refused in the flag's words.
#ifndef LOCKSTEP_COMMON_CONFIG_CONFIG_FILE_H_
#define LOCKSTEP_COMMON_CONFIG_CONFIG_FILE_H_

#include "common/cli/command.h"

namespace lockstep {

// Call once, after all other flags are there.
void AddConfigFile(Command* command);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CONFIG_CONFIG_FILE_H_
