// Contexts: named clusters, and how to connect to them.
//
//   current-context: local
//   contexts:
//     local:
//       address: 127.0.0.1:41234
//       ca: /home/ann/.local/share/lockstep/local/user/ca.crt
//       cert: .../tls.crt
//       key: .../tls.key
//       local-dir: /home/ann/.local/share/lockstep/local
//
// The user's file is $LOCKSTEP_CONFIG, or
// $XDG_CONFIG_HOME/lockstep/config.yaml, or ~/.config/lockstep/config.yaml. The
// site's file is /etc/lockstep/config.yaml.
#ifndef LOCKSTEP_CLIENT_CLI_CONFIG_H_
#define LOCKSTEP_CLIENT_CLI_CONFIG_H_

#include <map>
#include <optional>
#include <string>

#include "client/cli/environment.h"
#include "client/lib/client.h"
#include "common/base/status.h"

namespace lockstep::cli {

struct ContextEntry {
  std::string address;
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
  // The directory of a `lockstep local up` cluster. Empty for other clusters.
  std::string local_dir = {};

  bool operator==(const ContextEntry&) const = default;
};

struct Config {
  std::string current;
  std::map<std::string, ContextEntry> contexts;

  bool operator==(const Config&) const = default;
};

// Values of flags or of LOCKSTEP_* in the environment; empty if not given.
struct ConnectionFlags {
  std::string context;
  std::string address;
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
};

// Pure. InvalidArgument: "SOURCE:LINE:COLUMN: ...".
StatusOr<Config> ParseConfig(const std::string& text,
                             const std::string& source);
std::string FormatConfig(const Config& config);

// Returns the path of the user's file, which may not exist.
std::string UserConfigPath(const CliEnvironment& env);

// Returns an empty Config if the file is missing or `path` is empty.
StatusOr<Config> LoadConfig(const std::string& path);
// Replaces the user's file, readable by its owner only. Comments are lost.
// Returns its path. FailedPrecondition if no variable gives its location.
StatusOr<std::string> SaveUserConfig(const CliEnvironment& env,
                                     const Config& config);

// Resolves, in this order: flags, LOCKSTEP_CONTEXT, _ADDRESS, _CA, _CERT, _KEY
// and _INSECURE_LOOPBACK, the context. Pure except for reading files.
// FailedPrecondition with the remedy if no cluster is given. NotFound if there
// is no such context.
StatusOr<ClientOptions> ResolveConnection(const ConnectionFlags& flags,
                                          const CliEnvironment& env);

// Returns the local_dir of the context `name` of the user's file. An empty
// `name` means the current context (LOCKSTEP_CONTEXT, then the file's). Empty
// if there is no local_dir or no such context.
StatusOr<std::string> LocalDirOfContext(const std::string& name,
                                        const CliEnvironment& env);

// Adds or replaces a context of the user's file and makes it the current one.
// The rest of the file stays, except comments. Returns the file's path.
StatusOr<std::string> SaveContext(const CliEnvironment& env,
                                  const std::string& name,
                                  const ContextEntry& entry);
// Removes every context with this address. OK if there is none.
Status RemoveContexts(const CliEnvironment& env, const std::string& address);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_CONFIG_H_
