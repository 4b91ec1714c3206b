#include "common/pki/identity.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/ascii.h"

namespace lockstep::pki {
namespace {

constexpr std::string_view kScheme = "spiffe://";
constexpr size_t kMaxName = 63;

bool IsLowerOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool IsLetterOrDigit(char c) {
  return IsLowerOrDigit(c) || (c >= 'A' && c <= 'Z');
}

// The parts between the slashes. Returns the default identity if unknown.
Identity FromParts(const std::vector<std::string_view>& parts) {
  if (parts.size() == 3 && parts[1] == "coordinator") {
    return CoordinatorIdentity(std::string(parts[0]), std::string(parts[2]));
  }
  if (parts.size() == 3 && parts[1] == "worker") {
    return WorkerIdentity(std::string(parts[0]), std::string(parts[2]));
  }
  if (parts.size() == 4 && parts[1] == "user") {
    const StatusOr<UserRole> role = ParseUserRole(parts[2]);
    if (role.ok()) {
      return UserIdentity(std::string(parts[0]), *role, std::string(parts[3]));
    }
  }
  return Identity();
}

}  // namespace

Identity CoordinatorIdentity(std::string cluster, std::string id) {
  return {Identity::Kind::kCoordinator, std::move(cluster), std::move(id)};
}

Identity WorkerIdentity(std::string cluster, std::string node) {
  return {Identity::Kind::kWorker, std::move(cluster), std::move(node)};
}

Identity UserIdentity(std::string cluster, UserRole role, std::string name) {
  return {Identity::Kind::kUser, std::move(cluster), std::move(name), role};
}

Identity InsecureIdentity() {
  return {Identity::Kind::kInsecure, "", "insecure"};
}

Status CheckNodeName(std::string_view what, std::string_view name) {
  const bool ok = !name.empty() && name.size() <= kMaxName &&
                  name.front() != '-' && name.back() != '-' &&
                  std::all_of(name.begin(), name.end(), [](char c) {
                    return IsLowerOrDigit(c) || c == '-';
                  });
  if (ok) return OkStatus();
  return InvalidArgument(
      "{} \"{}\" is not allowed: use 1 to 63 lower-case letters, digits and "
      "'-', with a letter or digit at both ends",
      what, name);
}

Status CheckUserName(std::string_view name) {
  const bool ok =
      !name.empty() && name.size() <= kMaxName &&
      IsLetterOrDigit(name.front()) &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-';
      });
  if (ok) return OkStatus();
  return InvalidArgument(
      "user name \"{}\" is not allowed: use 1 to 63 letters, digits, '.', '_' "
      "and '-', with a letter or digit first",
      name);
}

Status CheckIdentity(const Identity& identity) {
  if (identity.kind == Identity::Kind::kInsecure) {
    return InvalidArgument("an unauthenticated caller has no certificate");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckNodeName("cluster name", identity.cluster));
  switch (identity.kind) {
    case Identity::Kind::kCoordinator:
      return CheckNodeName("coordinator id", identity.name);
    case Identity::Kind::kWorker:
      return CheckNodeName("node name", identity.name);
    default:
      return CheckUserName(identity.name);
  }
}

std::string FormatIdentity(const Identity& identity) {
  switch (identity.kind) {
    case Identity::Kind::kCoordinator:
      return fmt::format("{}{}/coordinator/{}", kScheme, identity.cluster,
                         identity.name);
    case Identity::Kind::kWorker:
      return fmt::format("{}{}/worker/{}", kScheme, identity.cluster,
                         identity.name);
    case Identity::Kind::kUser:
      return fmt::format("{}{}/user/{}/{}", kScheme, identity.cluster,
                         UserRoleName(identity.role), identity.name);
    case Identity::Kind::kInsecure:
      break;
  }
  return std::string();
}

StatusOr<Identity> ParseIdentity(std::string_view uri) {
  if (uri.starts_with(kScheme)) {
    Identity identity = FromParts(SplitText(uri.substr(kScheme.size()), '/'));
    if (CheckIdentity(identity).ok()) return identity;
  }
  return InvalidArgument(
      "\"{}\" is not a lockstep identity: those are "
      "spiffe://CLUSTER/coordinator/ID, spiffe://CLUSTER/worker/NODE and "
      "spiffe://CLUSTER/user/ROLE/NAME",
      uri);
}

std::string Describe(const Identity& identity) {
  switch (identity.kind) {
    case Identity::Kind::kCoordinator:
      return fmt::format("coordinator {}", identity.name);
    case Identity::Kind::kWorker:
      return fmt::format("worker {}", identity.name);
    case Identity::Kind::kUser:
      return fmt::format("user {} ({})", identity.name,
                         UserRoleName(identity.role));
    case Identity::Kind::kInsecure:
      break;
  }
  return "an unauthenticated caller";
}

std::string_view UserRoleName(UserRole role) {
  switch (role) {
    case UserRole::kViewer:
      return "viewer";
    case UserRole::kSubmitter:
      return "submitter";
    case UserRole::kAdmin:
      break;
  }
  return "admin";
}

StatusOr<UserRole> ParseUserRole(std::string_view text) {
  for (UserRole role :
       {UserRole::kViewer, UserRole::kSubmitter, UserRole::kAdmin}) {
    if (text == UserRoleName(role)) return role;
  }
  return InvalidArgument(
      "\"{}\" is not a role: roles are viewer, submitter and admin", text);
}

}  // namespace lockstep::pki
