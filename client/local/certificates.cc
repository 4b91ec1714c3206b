#include "client/local/certificates.h"

#include "common/base/file.h"
#include "common/pki/ca.h"
#include "common/pki/credentials.h"
#include "common/pki/identity.h"

namespace lockstep::cli {
namespace {

constexpr Duration kRenewBefore = std::chrono::hours(24 * 30);

Status MakeOne(const pki::CertificateAuthority& ca, const std::string& dir,
               const pki::LeafRequest& request, WallTime now) {
  FileSystem* const files = RealFileSystem();
  const auto old = LoadCredentials(files, pki::CredentialPathsIn(dir), now);
  if (old.ok() && old->identity == request.identity &&
      old->ca == ca.certificate() && old->not_after - now > kRenewBefore) {
    return OkStatus();
  }
  return IssueInto(files, dir, ca, request, now).status();
}

StatusOr<pki::CertificateAuthority> OpenCa(const std::string& dir,
                                           const std::string& cluster,
                                           WallTime now) {
  auto ca = pki::CertificateAuthority::Load(RealFileSystem(), dir, now);
  if (ca.status().code() != StatusCode::kNotFound) return ca;
  return pki::CertificateAuthority::CreateIn(RealFileSystem(), dir, cluster,
                                             now);
}

}  // namespace

Status MakeCertificates(const LocalLayout& layout, const ClusterRecord& record,
                        const std::string& user, WallTime now) {
  LOCKSTEP_ASSIGN_OR_RETURN(const pki::CertificateAuthority ca,
                            OpenCa(layout.CaDir(), record.cluster, now));
  pki::LeafRequest coordinator;
  coordinator.identity =
      pki::CoordinatorIdentity(record.cluster, "coordinator");
  coordinator.names = {"localhost", "127.0.0.1"};
  LOCKSTEP_RETURN_IF_ERROR(
      MakeOne(ca, layout.TlsDir(kCoordinator), coordinator, now));
  for (const WorkerRecord& worker : record.workers) {
    pki::LeafRequest request;
    request.identity = pki::WorkerIdentity(record.cluster, worker.name);
    LOCKSTEP_RETURN_IF_ERROR(
        MakeOne(ca, layout.TlsDir(worker.name), request, now));
  }
  pki::LeafRequest request;
  request.identity = UserIdentity(record.cluster, pki::UserRole::kAdmin, user);
  return MakeOne(ca, layout.UserDir(), request, now);
}

}  // namespace lockstep::cli
