// What a program needs to prove who it is, and to know its peers: the CA's
// certificate, its own, and the key.
#ifndef LOCKSTEP_COMMON_PKI_CREDENTIALS_H_
#define LOCKSTEP_COMMON_PKI_CREDENTIALS_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/pki/identity.h"

namespace lockstep {

struct CredentialPaths {
  std::string ca;
  std::string certificate;
  std::string key;
};

// ca.crt, tls.crt and tls.key in `dir`.
CredentialPaths CredentialPathsIn(const std::string& dir);

// Loaded and checked; a plain value.
struct Credentials {
  Identity identity;
  // Of the program's own certificate: export it, warn before it.
  WallTime not_after;
  // PEM. `ca` may hold several certificates, `certificate` a chain.
  std::string ca;
  std::string certificate;
  std::string key;
};

// Errors, each a sentence with the path and what to do:
//   NotFound            a file is missing
//   PermissionDenied    cannot be read, or everybody can read the key
//   InvalidArgument     not PEM, the key is another certificate's, the CA did
//                       not sign it, or no single name of ours is in it
//   FailedPrecondition  expired or not yet valid: names the date
StatusOr<Credentials> LoadCredentials(FileSystem* files,
                                      const CredentialPaths& paths,
                                      WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PKI_CREDENTIALS_H_
