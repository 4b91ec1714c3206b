// The directory of a cluster's CA, made by `lockstep init`.
#ifndef LOCKSTEP_CLIENT_CLI_PKI_DIR_H_
#define LOCKSTEP_CLIENT_CLI_PKI_DIR_H_

#include <string>

#include "client/cli/environment.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/cli/command.h"

namespace lockstep::cli {

void AddPkiDirOption(Command* command, std::string* dir);

// `dir`, or $XDG_CONFIG_HOME/lockstep/pki, or ~/.config/lockstep/pki.
// FailedPrecondition when neither variable is set.
StatusOr<std::string> PkiDir(const std::string& dir, const CliEnvironment& env);

// Returns its ca folder.
std::string CaDirIn(const std::string& pki_dir);

// Issues a `worker`, `user` or `coordinator` certificate for NAME with the CA
// of `pki_dir` into `output`. `role` is for users only. Returns the
// certificate's expiry.
StatusOr<WallTime> IssueCertificate(const std::string& pki_dir,
                                    const std::string& kind,
                                    const std::string& name,
                                    const std::string& role,
                                    const std::string& output, WallTime now);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_PKI_DIR_H_
