// --config FILE: a daemon's flags as a YAML file.
//
//   # /etc/lockstep/worker.yaml
//   coordinator: c.example:7443
//   gpus: 4
//
// A key is a flag's name without its leading dashes, with "_" or "-" between
// words. A value is the flag's value (true or false for a flag without one).
// The command line overrides the file. The file is rejected, with file and
// line, for an unknown key (the nearest name is given), a repeated key, a key
// without value, a map or broken YAML. A value that the flag rejects gets the
// flag's own error.
#ifndef LOCKSTEP_COMMON_CONFIG_CONFIG_FILE_H_
#define LOCKSTEP_COMMON_CONFIG_CONFIG_FILE_H_

#include "common/cli/command.h"

namespace lockstep {

// Call it once, after all other flags are added.
void AddConfigFile(Command* command);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_CONFIG_CONFIG_FILE_H_
