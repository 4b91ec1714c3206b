// The files by which a program proves its identity and verifies its peers: the
// CA's certificate, its own certificate, and its key.
#ifndef LOCKSTEP_COMMON_PKI_CREDENTIALS_H_
#define LOCKSTEP_COMMON_PKI_CREDENTIALS_H_

#include <string>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/pki/identity.h"

namespace lockstep::pki {

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
  // Expiry of the program's own certificate.
  WallTime not_after;
  // PEM. `ca` may hold several certificates, `certificate` a chain.
  std::string ca;
  std::string certificate;
  std::string key;
};

// Errors, each a sentence with the path and the remedy:
//   NotFound            a file is missing
//   PermissionDenied    a file is unreadable, or the key is world-readable
//   InvalidArgument     a file is not PEM, the key belongs to another
//                       certificate, the CA did not sign the certificate, or it
//                       does not hold exactly one lockstep identity
//   FailedPrecondition  expired or not yet valid; names the date
StatusOr<Credentials> LoadCredentials(FileSystem* files,
                                      const CredentialPaths& paths,
                                      WallTime now);

}  // namespace lockstep::pki

#endif  // LOCKSTEP_COMMON_PKI_CREDENTIALS_H_
