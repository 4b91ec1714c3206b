// The cluster's own certificate authority: P-256, made by `lockstep init` and
// by local clusters.
//
// A directory holds ca.crt (0644) and ca.key (0400); it is 0700. Whoever has
// the key can be anybody, so it stays where certificates are issued and goes
// to no daemon. A leaf carries exactly one URI, the identity; DNS names and
// addresses are for programs that check host names, lockstep does not.
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

namespace lockstep {

// What clients ask for in the TLS handshake (SNI), whatever the address.
inline constexpr char kCoordinatorDnsName[] = "lockstep-coordinator";

inline constexpr Duration kCaLifetime = std::chrono::hours(24 * 3652);
inline constexpr Duration kLeafLifetime = std::chrono::hours(24 * 365);

struct LeafRequest {
  // Of the CA's cluster.
  Identity identity;
  // DNS names and IP addresses. A coordinator has kCoordinatorDnsName, too.
  std::vector<std::string> names;
  // May be negative in tests: expired from the start.
  Duration lifetime = kLeafLifetime;
  // May also act as a TLS server, as a worker that serves its metrics by
  // HTTPS. A coordinator always may. Others cannot pose as one: TLS itself
  // refuses a certificate that is for clients only.
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
  // A new one in memory, valid from `now`. InvalidArgument: `cluster` is not a
  // name.
  static StatusOr<CertificateAuthority> Create(const std::string& cluster,
                                               WallTime now,
                                               Duration lifetime = kCaLifetime);
  // Create, then store in `dir`, which is made. AlreadyExists where `dir`
  // holds a CA: replacing it would lock every daemon out.
  static StatusOr<CertificateAuthority> CreateIn(FileSystem* files,
                                                 const std::string& dir,
                                                 const std::string& cluster,
                                                 WallTime now);
  // NotFound where there is none; FailedPrecondition when it has expired.
  static StatusOr<CertificateAuthority> Load(FileSystem* files,
                                             const std::string& dir,
                                             WallTime now);

  CertificateAuthority(CertificateAuthority&&) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&&) noexcept;
  ~CertificateAuthority();

  // A new key and its certificate; it never outlives the CA.
  // InvalidArgument: the identity or a name is malformed, or of another
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
// into `dir` (made, 0700), each atomically, the certificate last. What was
// there is replaced: the new files are used from the next start on.
StatusOr<CredentialPaths> IssueInto(FileSystem* files, const std::string& dir,
                                    const CertificateAuthority& ca,
                                    const LeafRequest& request, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PKI_CA_H_
