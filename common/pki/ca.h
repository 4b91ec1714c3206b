// The cluster's certificate authority (P-256). `lockstep init` and local
// clusters make one.
//
// A directory (0700) holds ca.crt (0644) and ca.key (0400). The key can issue
// any identity, so it stays where certificates are issued and goes to no
// daemon. A leaf carries exactly one URI, its identity. DNS names and addresses
// serve programs that check host names; lockstep does not.
//
// Certificates follow RFC 5280. Immutable after construction: safe from any
// thread.
#ifndef LOCKSTEP_COMMON_PKI_CA_H_
#define LOCKSTEP_COMMON_PKI_CA_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/pki/credentials.h"
#include "common/pki/identity.h"

namespace lockstep::pki {

// The SNI name that clients send in the TLS handshake, whatever the address.
inline constexpr char kCoordinatorDnsName[] = "lockstep-coordinator";

inline constexpr Duration kCaLifetime = std::chrono::hours(24 * 3652);
inline constexpr Duration kLeafLifetime = std::chrono::hours(24 * 365);

struct LeafRequest {
  // Must be of the CA's cluster.
  Identity identity;
  // DNS names and IP addresses. A coordinator also gets kCoordinatorDnsName.
  std::vector<std::string> names;
  // Tests may use a negative value for an expired certificate.
  Duration lifetime = kLeafLifetime;
  // The certificate may also serve TLS, as for a worker with HTTPS metrics. A
  // coordinator's always may. Others cannot pose as a server: TLS rejects a
  // server with a client-only certificate.
  bool server = false;
};

struct KeyAndCertificate {
  // PEM, PKCS#8, unencrypted.
  std::string key;
  // PEM.
  std::string certificate;
};

class CertificateAuthority {
 public:
  // Creates a CA in memory, valid from `now`. InvalidArgument if `cluster` is
  // not a valid name.
  static StatusOr<CertificateAuthority> Create(const std::string& cluster,
                                               WallTime now,
                                               Duration lifetime = kCaLifetime);
  // Calls Create and stores the CA in `dir`, which is made. AlreadyExists if
  // `dir` holds a CA: replacing it would lock out every daemon.
  static StatusOr<CertificateAuthority> CreateIn(FileSystem* files,
                                                 const std::string& dir,
                                                 const std::string& cluster,
                                                 WallTime now);
  // NotFound if there is no CA; FailedPrecondition if it has expired.
  static StatusOr<CertificateAuthority> Load(FileSystem* files,
                                             const std::string& dir,
                                             WallTime now);

  CertificateAuthority(CertificateAuthority&&) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // Issues a new key and certificate, which never outlives the CA.
  // InvalidArgument if the identity or a name is malformed or of another
  // cluster.
  StatusOr<KeyAndCertificate> Issue(const LeafRequest& request,
                                    WallTime now) const;

  const std::string& cluster() const;
  // PEM.
  const std::string& certificate() const;
  WallTime not_after() const;

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  static StatusOr<CertificateAuthority> FromPem(const std::string& certificate,
                                                const std::string& key,
                                                WallTime now);

  std::unique_ptr<State> state_;
};

// Issues for `request` and writes ca.crt, tls.crt (0644) and tls.key (0600)
// into `dir` (made with 0700), each atomically, the certificate last. Existing
// files are replaced; programs use the new ones from their next start.
StatusOr<CredentialPaths> IssueInto(FileSystem* files, const std::string& dir,
                                    const CertificateAuthority& ca,
                                    const LeafRequest& request, WallTime now);

}  // namespace lockstep::pki

#endif  // LOCKSTEP_COMMON_PKI_CA_H_
