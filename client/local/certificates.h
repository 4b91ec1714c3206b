// The temporary CA of a local cluster and its certificates.
#ifndef LOCKSTEP_CLIENT_LOCAL_CERTIFICATES_H_
#define LOCKSTEP_CLIENT_LOCAL_CERTIFICATES_H_

#include <string>

#include "client/local/layout.h"
#include "client/local/records.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::cli {

// Makes the CA and each certificate that is missing, unreadable or within 30
// days of expiry: of the coordinator, each worker and the user (an admin named
// `user`). A daemon uses a new one from its next start.
Status MakeCertificates(const LocalLayout& layout, const ClusterRecord& record,
                        const std::string& user, WallTime now);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LOCAL_CERTIFICATES_H_
