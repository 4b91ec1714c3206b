// The table of methods and the callers that may use them.
//
// A server builds it at its start from the option (lockstep.v1.role) of every
// method in the descriptors. A method without the option is an error that stops
// the binary. A method that is missing from the table is denied to all callers,
// so a service that is not listed is closed.
//
// Immutable: safe from any thread. Pure after construction.
#ifndef LOCKSTEP_COMMON_PKI_AUTHORISATION_H_
#define LOCKSTEP_COMMON_PKI_AUTHORISATION_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/pki/identity.h"

namespace google::protobuf {
class ServiceDescriptor;
}  // namespace google::protobuf

namespace lockstep::pki {

// The callers that a method admits.
struct MethodRule {
  enum class Admits {
    kUsers,      // With at least `role`.
    kWorkers,    // Workers only.
    kAnyCaller,  // Any caller with a certificate of this cluster: health,
                 // reflection.
  };
  Admits admits = Admits::kUsers;
  UserRole role = UserRole::kAdmin;
  // The method takes one message and answers one, so a call needs a deadline. A
  // stream has none and is watched by keepalive.
  bool unary = true;
};

// The services of lockstep/v1.
std::vector<const google::protobuf::ServiceDescriptor*> LockstepServices();

class AuthorisationTable {
 public:
  // Rules of `services`, and of gRPC's own health and reflection.
  // FailedPrecondition names the first method without a role.
  static StatusOr<AuthorisationTable> Create(
      const std::vector<const google::protobuf::ServiceDescriptor*>& services =
          LockstepServices());

  // Returns null for an unknown method. `method` is gRPC's path:
  // "/lockstep.v1.JobService/GetJob".
  const MethodRule* Find(std::string_view method) const;

  // OK, or
  //   Unimplemented     there is no such method
  //   Unauthenticated   the caller is not of `cluster`
  //   PermissionDenied  names the required role
  // An Identity::kInsecure may call every method. Only a server on loopback has
  // such callers.
  Status Authorise(const Identity& caller, std::string_view cluster,
                   std::string_view method) const;

  const std::map<std::string, MethodRule, std::less<>>& rules() const {
    return rules_;
  }

 private:
  std::map<std::string, MethodRule, std::less<>> rules_;
};

}  // namespace lockstep::pki

#endif  // LOCKSTEP_COMMON_PKI_AUTHORISATION_H_
