// Which certificate is out of its dates, said in a sentence: that it has
// expired or is not valid yet, when, and what the clock says, which may be what
// is wrong. FailedPrecondition in all of them.
#ifndef LOCKSTEP_COMMON_PKI_VALIDITY_H_
#define LOCKSTEP_COMMON_PKI_VALIDITY_H_

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

// Of the first certificate in `pem`, `what`: "the certificate /etc/x.crt".
// `renew` says how one gets another. OK also where there is none to be read.
Status CheckCertificateDates(const std::string& pem, std::string_view what,
                             std::string_view renew, WallTime now);

// Of what the coordinator at `address` (HOST:PORT) shows to whoever connects.
// Looks the name up, connects and waits, up to `patience` in all, and sends
// nothing of ours: to be asked after a handshake has failed, as gRPC does not
// say why. OK also where no
// certificate is seen. It proves nothing about who shows it.
Status CheckServerDates(const std::string& address, WallTime now,
                        Duration patience);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_PKI_VALIDITY_H_
