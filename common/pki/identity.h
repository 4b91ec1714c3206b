// The identity in a certificate: the one URI among its names. Pure.
//
//   spiffe://CLUSTER/coordinator/ID
//   spiffe://CLUSTER/worker/NODE
//   spiffe://CLUSTER/user/ROLE/NAME     ROLE: viewer, submitter, admin
//
// Peers are checked by this URI and never by host name, so a node may change
// its address. A user's role is part of the URI: the CA signs it, and the user
// cannot choose it.
#ifndef LOCKSTEP_COMMON_PKI_IDENTITY_H_
#define LOCKSTEP_COMMON_PKI_IDENTITY_H_

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep::pki {

// Each role includes the rights of those before it.
enum class UserRole { kViewer, kSubmitter, kAdmin };

struct Identity {
  enum class Kind {
    kCoordinator,
    kWorker,
    kUser,
    // A caller of a server that runs with --insecure-loopback. It is not
    // authenticated, so it may call every method and act for any node.
    kInsecure,
  };
  // The default is a user without name or rights.
  Kind kind = Kind::kUser;
  // Empty for kInsecure.
  std::string cluster;
  // The id, node or user; "insecure" for kInsecure.
  std::string name;
  // For users only.
  UserRole role = UserRole::kViewer;

  bool operator==(const Identity&) const = default;

  // True if the caller may send messages about `node`.
  bool SpeaksForNode(std::string_view node) const {
    return kind == Kind::kInsecure || (kind == Kind::kWorker && name == node);
  }
  // True if it may change any user's jobs and nodes.
  bool IsAdmin() const {
    return kind == Kind::kInsecure ||
           (kind == Kind::kUser && role == UserRole::kAdmin);
  }
};

Identity CoordinatorIdentity(std::string cluster, std::string id);
Identity WorkerIdentity(std::string cluster, std::string node);
Identity UserIdentity(std::string cluster, UserRole role, std::string name);
Identity InsecureIdentity();

// Clusters, coordinator ids and nodes: [a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?.
// InvalidArgument names `what` ("node name") and the rule.
Status CheckNodeName(std::string_view what, std::string_view name);
// [A-Za-z0-9][A-Za-z0-9._-]{0,62}.
Status CheckUserName(std::string_view name);
// Checks every part. InvalidArgument for kInsecure, which no certificate
// carries.
Status CheckIdentity(const Identity& identity);

// The URI. REQUIRES: CheckIdentity is OK.
std::string FormatIdentity(const Identity& identity);
// InvalidArgument if `uri` has none of the forms above.
StatusOr<Identity> ParseIdentity(std::string_view uri);

// For sentences: "worker host-a", "user ann (viewer)".
std::string Describe(const Identity& identity);

std::string_view UserRoleName(UserRole role);
// InvalidArgument lists the three.
StatusOr<UserRole> ParseUserRole(std::string_view text);

}  // namespace lockstep::pki

#endif  // LOCKSTEP_COMMON_PKI_IDENTITY_H_
