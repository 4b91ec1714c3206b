// The exit code and the text of an error. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_ERRORS_H_
#define LOCKSTEP_CLIENT_CLI_ERRORS_H_

#include <string>

#include "common/base/status.h"

namespace lockstep::cli {

// 2 usage, 3 not found, 4 denied, 5 unschedulable (reason NEVER_FITS), 6
// unavailable, 130 stopped by Ctrl-C, otherwise 1.
int ExitCodeOf(const Status& status);

// "lockstep: TEXT [REASON]".
std::string ErrorLine(const Status& status);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_ERRORS_H_
