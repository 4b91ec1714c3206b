// Who may call which method: the one table of it.
//
// Built when a server starts, from the option (lockstep.v1.role) of every
// method in the descriptors; a method without one is an error that stops the
// binary. What is not in the table may be called by nobody, so a service that
// somebody forgot to list is closed, not open.
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

namespace lockstep {

// What a method asks of its caller.
struct MethodRule {
  enum class Admits {
    kUsers,    // of at least `role`
    kWorkers,  // and nobody else
    kAnybody,  // who has a certificate of this cluster: health, reflection
  };
  Admits admits = Admits::kUsers;
  UserRole role = UserRole::kAdmin;
  // Takes one message and answers one: such a call needs a deadline. A stream
  // may last for ever and is watched by keepalive.
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

  // Null where there is no such method. `method` is gRPC's path:
  // "/lockstep.v1.JobService/GetJob".
  const MethodRule* Find(std::string_view method) const;

  // OK, or
  //   Unimplemented     no such method
  //   Unauthenticated   the caller is of a cluster other than `cluster`
  //   PermissionDenied  says what role it takes
  // An Identity::kInsecure may call everything: only a server that listens on
  // loopback ever has one.
  Status Authorise(const Identity& caller, std::string_view cluster,
                   std::string_view method) const;

  const std::map<std::string, MethodRule, std::less<>>& rules() const {
    return rules_;
  }

 private:
  std::map<std::string, MethodRule, std::less<>> rules_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PKI_AUTHORISATION_H_
