#include "common/pki/credentials.h"

#include <openssl/x509_vfy.h>

#include <utility>
#include <vector>

#include "common/pki/x509.h"

namespace lockstep::pki {
namespace {

using x509::CertPtr;
using x509::KeyPtr;

// Larger than any certificate chain; a wrong path may be any file.
constexpr uint64_t kMaxFile = 1 << 20;

StatusOr<std::string> ReadFile(FileSystem* files, std::string_view what,
                               const std::string& path) {
  StatusOr<std::string> data = files->Read(path, kMaxFile);
  if (data.ok()) return data;
  if (data.status().code() == StatusCode::kNotFound) {
    return NotFound(
        "{} is missing: {} does not exist; copy it here or issue one with "
        "`lockstep cert issue`",
        what, path);
  }
  return Annotate(data.status(), what);
}

Status CheckKeyMode(FileSystem* files, const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, files->Stat(path));
  if ((info.mode & 0007) == 0) return OkStatus();
  return PermissionDenied(
      "every user of this machine can read the key {} (mode {:04o}): chmod "
      "0600 "
      "it",
      path, info.mode);
}

// RFC 5280 section 6 for the first certificate of `chain`.
Status CheckChain(const std::vector<CertPtr>& roots,
                  const std::vector<CertPtr>& chain, WallTime now,
                  const CredentialPaths& paths) {
  const std::unique_ptr<X509_STORE, x509::Freer<X509_STORE_free>> store(
      X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, x509::Freer<X509_STORE_CTX_free>>
      context(X509_STORE_CTX_new());
  // Borrows the certificates, which `chain` owns.
  const auto free_stack = [](STACK_OF(X509) * s) { sk_X509_free(s); };
  const std::unique_ptr<STACK_OF(X509), decltype(free_stack)> between(
      sk_X509_new_null(), free_stack);
  bool ok = store != nullptr && context != nullptr && between != nullptr;
  for (const CertPtr& root : roots) {
    ok = ok && X509_STORE_add_cert(store.get(), root.get()) == 1;
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    ok = ok && sk_X509_push(between.get(), chain[i].get()) > 0;
  }
  if (!ok || X509_STORE_CTX_init(context.get(), store.get(),
                                 chain.front().get(), between.get()) != 1) {
    return x509::OpenSslError("checking a certificate");
  }
  X509_STORE_CTX_set_time(
      context.get(), 0, static_cast<time_t>(ToUnixNanos(now) / 1'000'000'000));
  if (X509_verify_cert(context.get()) == 1) return OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  const X509* const which = X509_STORE_CTX_get_current_cert(context.get());
  if ((error == X509_V_ERR_CERT_HAS_EXPIRED ||
       error == X509_V_ERR_CERT_NOT_YET_VALID) &&
      which != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(x509::CheckDates(
        which,
        fmt::format("the CA in {} that issued {}", paths.ca, paths.certificate),
        "get the cluster's new CA and new certificates", now));
  }
  return InvalidArgument("the certificate {} was not issued by the CA {}: {}",
                         paths.certificate, paths.ca,
                         X509_verify_cert_error_string(error));
}

StatusOr<Identity> IdentityOf(X509* cert, const std::string& path) {
  const std::vector<std::string> uris = x509::UriNames(cert);
  if (uris.size() != 1) {
    return InvalidArgument(
        "the certificate {} has {} URI names instead of exactly one "
        "identity: issue one with `lockstep cert issue`",
        path, uris.size());
  }
  StatusOr<Identity> identity = ParseIdentity(uris.front());
  if (!identity.ok()) {
    return Annotate(identity.status(), fmt::format("the certificate {}", path));
  }
  return identity;
}

}  // namespace

CredentialPaths CredentialPathsIn(const std::string& dir) {
  return {JoinPath(dir, "ca.crt"), JoinPath(dir, "tls.crt"),
          JoinPath(dir, "tls.key")};
}

StatusOr<Credentials> LoadCredentials(FileSystem* files,
                                      const CredentialPaths& paths,
                                      WallTime now) {
  const x509::ErrorQueueGuard guard;
  Credentials result;
  LOCKSTEP_ASSIGN_OR_RETURN(result.ca,
                            ReadFile(files, "the CA's certificate", paths.ca));
  LOCKSTEP_ASSIGN_OR_RETURN(
      result.certificate,
      ReadFile(files, "the certificate", paths.certificate));
  LOCKSTEP_ASSIGN_OR_RETURN(result.key, ReadFile(files, "the key", paths.key));
  LOCKSTEP_RETURN_IF_ERROR(CheckKeyMode(files, paths.key));

  const StatusOr<std::vector<CertPtr>> roots =
      x509::ReadCertificates(result.ca);
  if (!roots.ok()) return Annotate(roots.status(), paths.ca);
  const StatusOr<std::vector<CertPtr>> chain =
      x509::ReadCertificates(result.certificate);
  if (!chain.ok()) return Annotate(chain.status(), paths.certificate);
  const StatusOr<KeyPtr> key = x509::ReadKey(result.key);
  if (!key.ok()) return Annotate(key.status(), paths.key);

  X509* const leaf = chain->front().get();
  if (X509_check_private_key(leaf, key->get()) != 1) {
    return InvalidArgument(
        "the key {} does not belong to the certificate {}: they are issued "
        "together, so copy both from one place",
        paths.key, paths.certificate);
  }
  LOCKSTEP_RETURN_IF_ERROR(
      x509::CheckDates(leaf, "the certificate " + paths.certificate,
                       "issue a new one with `lockstep cert issue`", now));
  LOCKSTEP_RETURN_IF_ERROR(CheckChain(*roots, *chain, now, paths));
  LOCKSTEP_ASSIGN_OR_RETURN(result.identity,
                            IdentityOf(leaf, paths.certificate));
  LOCKSTEP_ASSIGN_OR_RETURN(result.not_after, x509::NotAfter(leaf));
  return result;
}

}  // namespace lockstep::pki
