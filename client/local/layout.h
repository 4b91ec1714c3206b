// The directory layout of a local cluster. Pure except for AbsolutePath and
// MakePrivateDir.
//
//   DIR/cluster.json        daemons, shares, ports (records.h)
//   DIR/state.json          running processes (records.h)
//   DIR/machines.yaml       what machine types reserve here
//   DIR/http-token          the HTTP token of all daemons
//   DIR/lock                held while the cluster starts or stops
//   DIR/ca/                 the throw-away CA
//   DIR/user/               the CLI's certificate
//   DIR/coordinator/        state, log, endpoint.json; tls/ with its files
//   DIR/worker-0/ ...       the same of each worker daemon
//   /tmp/lockstep-UID-HASH/ sockets and pages of tasks, one folder per worker
#ifndef LOCKSTEP_CLIENT_LOCAL_LAYOUT_H_
#define LOCKSTEP_CLIENT_LOCAL_LAYOUT_H_

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep::cli {

inline constexpr char kCoordinator[] = "coordinator";

struct LocalLayout {
  std::string dir;  // Absolute.

  std::string ClusterFile() const { return dir + "/cluster.json"; }
  std::string StateFile() const { return dir + "/state.json"; }
  std::string MachinesFile() const { return dir + "/machines.yaml"; }
  std::string HttpTokenFile() const { return dir + "/http-token"; }
  std::string LockFile() const { return dir + "/lock"; }
  std::string CaDir() const { return dir + "/ca"; }
  std::string UserDir() const { return dir + "/user"; }
  std::string DaemonDir(std::string_view daemon) const;
  std::string TlsDir(std::string_view daemon) const;
  std::string Log(std::string_view daemon) const;
  std::string Endpoint(std::string_view daemon) const;
};

// "worker-0": the name of the daemon and of its node.
std::string WorkerName(int index);

// Returns a short path for the tasks' Unix sockets (107 bytes in all), derived
// from the cluster's directory so that it can be found again. It is not in
// XDG_RUNTIME_DIR, which is emptied when the user logs out while the cluster
// may run on.
std::string RuntimeDir(std::string_view cluster_dir, uid_t uid);

// Resolves `path` against the working directory.
StatusOr<std::string> AbsolutePath(const std::string& path);

// Makes `path` with mode 0700, or checks that it is a private directory of this
// user, because others can write to /tmp. PermissionDenied if it is not.
Status MakePrivateDir(const std::string& path);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_LAYOUT_H_
