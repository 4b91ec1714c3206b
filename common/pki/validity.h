// Checks the dates of certificates. The error says that a certificate has
// expired or is not valid yet, the date, and the local time, which may be the
// fault. All errors are FailedPrecondition.
#ifndef LOCKSTEP_COMMON_PKI_VALIDITY_H_
#define LOCKSTEP_COMMON_PKI_VALIDITY_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::pki {

// Checks the first certificate in `pem`. `what` names it: "the certificate
// /etc/x.crt". `renew` says how to replace it. OK if none can be read.
Status CheckCertificateDates(const std::string& pem, std::string_view what,
                             std::string_view renew, WallTime now);

// Checks the certificate that the coordinator at `address` (HOST:PORT)
// presents. Resolves, connects and waits for up to `patience` in all, and sends
// no data. Call it after a failed handshake, because gRPC does not report the
// cause. OK if there is no certificate. It does not authenticate the peer.
Status CheckServerDates(const std::string& address, WallTime now,
                        Duration patience);

}  // namespace lockstep::pki

#endif  // LOCKSTEP_COMMON_PKI_VALIDITY_H_
