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
// $LOCKSTEP_CONFIG, else $XDG_CONFIG_HOME/lockstep/config.yaml of the user,
// else ~/.config/lockstep/config.yaml; then /etc/lockstep/config.yaml of the
// site.
#ifndef LOCKSTEP_CLIENT_CLI_CONFIG_H_
#define LOCKSTEP_CLIENT_CLI_CONFIG_H_

#include <map>
#include <optional>
#include <string>

#include "client/cli/environment.h"
#include "client/lib/client.h"
#include "common/base/status.h"

namespace lockstep {

struct ContextEntry {
  std::string address;
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
  // Where `lockstep local up` keeps the cluster; empty: it is not one of its.
  std::string local_dir = {};

  bool operator==(const ContextEntry&) const = default;
};

struct Config {
  std::string current;
  std::map<std::string, ContextEntry> contexts;

  bool operator==(const Config&) const = default;
};

// What was given by flags, or LOCKSTEP_* in the environment; empty: nothing.
struct ConnectionFlags {
  std::string context;
  std::string address;
  std::string ca;
  std::string cert;
  std::string key;
  bool insecure_loopback = false;
};

// Pure. InvalidArgument: "SOURCE:LINE:COLUMN: what".
StatusOr<Config> ParseConfig(const std::string& text,
                             const std::string& source);
std::string FormatConfig(const Config& config);

// The user's own file, whether it is there or not.
std::string UserConfigPath(const CliEnvironment& env);

// What the file says; an empty one where there is none, or `path` is empty.
StatusOr<Config> LoadConfig(const std::string& path);
// Replaces the user's file, readable by its owner alone. Comments are lost.
// Returns its path. FailedPrecondition: no variable says where it would be.
StatusOr<std::string> SaveUserConfig(const CliEnvironment& env,
                                     const Config& config);

// Pure but for the files it reads: flags, then LOCKSTEP_CONTEXT, _ADDRESS, _CA,
// _CERT, _KEY and _INSECURE_LOOPBACK, then the context. FailedPrecondition
// where no cluster is named anywhere: says what to do. NotFound: no such
// context.
StatusOr<ClientOptions> ResolveConnection(const ConnectionFlags& flags,
                                          const CliEnvironment& env);

// The local_dir of the context `name` of the user's file; of the current one
// (LOCKSTEP_CONTEXT, then the file's) where `name` is empty. Empty: it has
// none, or there is no such context.
StatusOr<std::string> LocalDirOfContext(const std::string& name,
                                        const CliEnvironment& env);

// Adds or replaces a context of the user's file and makes it the current one.
// What else is there stays, but for comments. Returns the file's path.
StatusOr<std::string> SaveContext(const CliEnvironment& env,
                                  const std::string& name,
                                  const ContextEntry& entry);
// Takes out every context with this address. OK where there is none.
Status RemoveContexts(const CliEnvironment& env, const std::string& address);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_CONFIG_H_
