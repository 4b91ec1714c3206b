// Certificates that `lockstep cert issue` would never make.
#ifndef LOCKSTEP_TESTS_SECURITY_CERTIFICATES_H_
#define LOCKSTEP_TESTS_SECURITY_CERTIFICATES_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/pki/ca.h"

namespace lockstep {

struct RawCertificate {
  std::vector<std::string> uris;
  WallTime not_before;
  WallTime not_after;
  bool server = false;
};

// Signed by the CA whose files lie in `ca_dir`, whatever it says. Ends the
// test program where OpenSSL fails.
pki::KeyAndCertificate IssueRaw(const std::string& ca_dir,
                                const RawCertificate& request);

// A channel that shows this certificate, or none where `leaf` is null, and
// trusts `ca`. Nothing is retried, and the server's name is not looked at.
std::shared_ptr<grpc::Channel> RawChannel(const std::string& target,
                                          const std::string& ca,
                                          const pki::KeyAndCertificate* leaf);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SECURITY_CERTIFICATES_H_
