#include "common/pki/ca.h"

#include <arpa/inet.h>
#include <openssl/ec.h>

#include <algorithm>
#include <utility>

#include "common/base/random.h"
#include "common/pki/x509.h"

namespace lockstep::pki {
namespace {

using x509::CertPtr;
using x509::KeyPtr;
using x509::OpenSslError;

// A daemon whose clock is slightly behind accepts a new certificate, too.
constexpr Duration kClockSkew = std::chrono::minutes(5);
// RFC 5280 appendix A.1, ub-common-name.
constexpr size_t kMaxCommonName = 64;

std::string CaCertificatePath(const std::string& dir) {
  return JoinPath(dir, "ca.crt");
}
std::string CaKeyPath(const std::string& dir) {
  return JoinPath(dir, "ca.key");
}

std::string TrustDomain(const std::string& cluster) {
  return "spiffe://" + cluster;
}

StatusOr<KeyPtr> MakeKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslError("making a P-256 key");
  return key;
}

bool SetTime(ASN1_TIME* field, WallTime time) {
  return ASN1_TIME_set(field, static_cast<time_t>(ToUnixNanos(time) /
                                                  1'000'000'000)) != nullptr;
}

// 127 random bits: positive and at most 20 octets (RFC 5280 4.1.2.2).
bool SetSerial(X509* cert) {
  std::string bytes = RandomBytes(16);
  bytes[0] = static_cast<char>(bytes[0] & 0x7f);
  const std::unique_ptr<BIGNUM, x509::Freer<BN_free>> number(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                static_cast<int>(bytes.size()), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(cert)) !=
             nullptr;
}

bool AddNamePart(X509_NAME* name, const char* field, const std::string& text) {
  return X509_NAME_add_entry_by_txt(
             name, field, MBSTRING_UTF8,
             reinterpret_cast<const unsigned char*>(text.data()),
             static_cast<int>(text.size()), -1, 0) == 1;
}

bool AddExtension(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, x509::Freer<X509_EXTENSION_free>>
      extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(cert, extension.get(), -1) == 1;
}

// Not by a configuration string, because a name could contain a comma.
bool AddAlternativeNames(X509* cert, const std::string& uri,
                         const std::vector<std::string>& names) {
  const std::unique_ptr<GENERAL_NAMES, x509::Freer<GENERAL_NAMES_free>> all(
      GENERAL_NAMES_new());
  const auto add = [&](int type, ASN1_STRING* value) {
    GENERAL_NAME* name = GENERAL_NAME_new();
    if (value == nullptr || name == nullptr) return false;
    GENERAL_NAME_set0_value(name, type, value);
    return sk_GENERAL_NAME_push(all.get(), name) > 0;
  };
  const auto text = [](int type, const std::string& s) {
    ASN1_STRING* value = ASN1_STRING_type_new(type);
    ASN1_STRING_set(value, s.data(), static_cast<int>(s.size()));
    return value;
  };
  if (!add(GEN_URI, text(V_ASN1_IA5STRING, uri))) return false;
  for (const std::string& name : names) {
    ASN1_OCTET_STRING* address = a2i_IPADDRESS(name.c_str());
    const bool added = address != nullptr
                           ? add(GEN_IPADD, address)
                           : add(GEN_DNS, text(V_ASN1_IA5STRING, name));
    if (!added) return false;
  }
  return X509_add1_ext_i2d(cert, NID_subject_alt_name, all.get(), 0, 0) == 1;
}

Status CheckHostName(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ':';
  };
  if (!name.empty() && name.size() <= 253 &&
      std::all_of(name.begin(), name.end(), allowed)) {
    return OkStatus();
  }
  return InvalidArgument("\"{}\" is neither a host name nor an IP address",
                         name);
}

// Version 3, serial, dates, subject and key; no issuer, extension, signature.
StatusOr<CertPtr> StartCertificate(EVP_PKEY* key, const std::string& unit,
                                   const std::string& common_name,
                                   WallTime not_before, WallTime not_after) {
  CertPtr cert(X509_new());
  X509_NAME* const subject =
      cert == nullptr ? nullptr : X509_get_subject_name(cert.get());
  if (subject == nullptr || X509_set_version(cert.get(), X509_VERSION_3) != 1 ||
      !SetSerial(cert.get()) ||
      !SetTime(X509_getm_notBefore(cert.get()), not_before) ||
      !SetTime(X509_getm_notAfter(cert.get()), not_after) ||
      !AddNamePart(subject, "O", "lockstep") ||
      !AddNamePart(subject, "OU", unit) ||
      !AddNamePart(subject, "CN", common_name.substr(0, kMaxCommonName)) ||
      X509_set_pubkey(cert.get(), key) != 1) {
    return OpenSslError("making a certificate");
  }
  return cert;
}

const char* UnitOf(const Identity& identity) {
  switch (identity.kind) {
    case Identity::Kind::kCoordinator:
      return "coordinator";
    case Identity::Kind::kWorker:
      return "worker";
    default:
      return "user";
  }
}

}  // namespace

struct CertificateAuthority::State {
  std::string cluster;
  std::string certificate_pem;
  std::string key_pem;
  CertPtr certificate;
  KeyPtr key;
  WallTime not_after;
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept =
    default;
CertificateAuthority& CertificateAuthority::operator=(
    CertificateAuthority&&) noexcept = default;
CertificateAuthority::~CertificateAuthority() = default;

const std::string& CertificateAuthority::cluster() const {
  return state_->cluster;
}
const std::string& CertificateAuthority::certificate() const {
  return state_->certificate_pem;
}
WallTime CertificateAuthority::not_after() const { return state_->not_after; }

StatusOr<CertificateAuthority> CertificateAuthority::Create(
    const std::string& cluster, WallTime now, Duration lifetime) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNodeName("cluster name", cluster));
  LOCKSTEP_ASSIGN_OR_RETURN(KeyPtr key, MakeKey());
  LOCKSTEP_ASSIGN_OR_RETURN(
      CertPtr cert, StartCertificate(key.get(), "CA", cluster, now - kClockSkew,
                                     now + lifetime));
  // SPIFFE X509-SVID section 3: a signing certificate may name its trust
  // domain. A loaded CA finds its cluster there.
  if (X509_set_issuer_name(cert.get(), X509_get_subject_name(cert.get())) !=
          1 ||
      !AddExtension(cert.get(), cert.get(), NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(cert.get(), cert.get(), NID_key_usage,
                    "critical,keyCertSign,cRLSign") ||
      !AddExtension(cert.get(), cert.get(), NID_subject_key_identifier,
                    "hash") ||
      !AddAlternativeNames(cert.get(), TrustDomain(cluster), {}) ||
      X509_sign(cert.get(), key.get(), EVP_sha256()) == 0) {
    return OpenSslError("making the CA's certificate");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string pem,
                            x509::WriteCertificate(cert.get()));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string key_pem,
                            x509::WriteKey(key.get()));
  // Parses the PEM to be stored, so that both ways give the same object.
  return FromPem(pem, key_pem, now);
}

StatusOr<CertificateAuthority> CertificateAuthority::FromPem(
    const std::string& certificate, const std::string& key, WallTime now) {
  const x509::ErrorQueueGuard guard;
  auto state = std::make_unique<State>();
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<CertPtr> certs,
                            x509::ReadCertificates(certificate));
  LOCKSTEP_ASSIGN_OR_RETURN(state->key, x509::ReadKey(key));
  state->certificate = std::move(certs.front());
  X509* const cert = state->certificate.get();
  if (X509_check_ca(cert) == 0) {
    return InvalidArgument("the certificate is not a CA's");
  }
  if (X509_check_private_key(cert, state->key.get()) != 1) {
    return InvalidArgument("the key does not belong to the certificate");
  }
  const std::vector<std::string> uris = x509::UriNames(cert);
  constexpr std::string_view kScheme = "spiffe://";
  if (uris.size() != 1 || !uris[0].starts_with(kScheme)) {
    return InvalidArgument(
        "the CA's certificate does not name its cluster (one URI "
        "spiffe://CLUSTER): make one with `lockstep init`");
  }
  state->cluster = uris[0].substr(kScheme.size());
  LOCKSTEP_RETURN_IF_ERROR(CheckNodeName("cluster name", state->cluster));
  LOCKSTEP_ASSIGN_OR_RETURN(state->not_after, x509::NotAfter(cert));
  if (now >= state->not_after) {
    return x509::CheckDates(cert, "the CA", "make a new one", now);
  }
  state->certificate_pem = certificate;
  state->key_pem = key;
  return CertificateAuthority(std::move(state));
}

StatusOr<CertificateAuthority> CertificateAuthority::CreateIn(
    FileSystem* files, const std::string& dir, const std::string& cluster,
    WallTime now) {
  if (files->Exists(CaCertificatePath(dir))) {
    return AlreadyExists(
        "{} already holds a CA: replacing it would lock out every certificate "
        "that it has issued",
        dir);
  }
  if (files->Exists(CaKeyPath(dir))) {
    return AlreadyExists(
        "{} holds the key of a CA without its certificate: put ca.crt back, or "
        "remove ca.key if nothing was issued with it",
        dir);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(CertificateAuthority ca, Create(cluster, now));
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(dir, 0700));
  // The key first: a certificate without its key is useless, and the check
  // above would prevent a retry.
  LOCKSTEP_RETURN_IF_ERROR(
      files->WriteAtomic(CaKeyPath(dir), ca.state_->key_pem, 0400));
  const Status written = files->WriteAtomic(CaCertificatePath(dir),
                                            ca.state_->certificate_pem, 0644);
  if (!written.ok()) {
    files->Remove(CaKeyPath(dir)).IgnoreError();
    return written;
  }
  return ca;
}

StatusOr<CertificateAuthority> CertificateAuthority::Load(
    FileSystem* files, const std::string& dir, WallTime now) {
  const std::string path = CaCertificatePath(dir);
  const StatusOr<std::string> certificate = files->Read(path, 1 << 20);
  if (!certificate.ok()) {
    return Annotate(certificate.status(),
                    fmt::format("there is no usable CA in {}", dir));
  }
  const StatusOr<std::string> key = files->Read(CaKeyPath(dir), 1 << 20);
  if (!key.ok()) {
    return Annotate(key.status(),
                    fmt::format("the CA's key in {} is not usable", dir));
  }
  StatusOr<CertificateAuthority> ca = FromPem(*certificate, *key, now);
  if (!ca.ok()) return Annotate(ca.status(), path);
  return ca;
}

StatusOr<KeyAndCertificate> CertificateAuthority::Issue(
    const LeafRequest& request, WallTime now) const {
  const x509::ErrorQueueGuard guard;
  const Identity& identity = request.identity;
  LOCKSTEP_RETURN_IF_ERROR(CheckIdentity(identity));
  if (identity.cluster != state_->cluster) {
    return InvalidArgument("this CA belongs to cluster {}, not to {}",
                           state_->cluster, identity.cluster);
  }
  std::vector<std::string> names = request.names;
  if (identity.kind == Identity::Kind::kCoordinator) {
    names.push_back(kCoordinatorDnsName);
  }
  for (const std::string& name : names) {
    LOCKSTEP_RETURN_IF_ERROR(CheckHostName(name));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(KeyPtr key, MakeKey());
  const WallTime end = std::min(now + request.lifetime, state_->not_after);
  LOCKSTEP_ASSIGN_OR_RETURN(
      CertPtr cert, StartCertificate(key.get(), UnitOf(identity), identity.name,
                                     std::min(now, end) - kClockSkew, end));
  X509* const issuer = state_->certificate.get();
  const bool server =
      request.server || identity.kind == Identity::Kind::kCoordinator;
  if (X509_set_issuer_name(cert.get(), X509_get_subject_name(issuer)) != 1 ||
      !AddExtension(cert.get(), issuer, NID_basic_constraints,
                    "critical,CA:FALSE") ||
      !AddExtension(cert.get(), issuer, NID_key_usage,
                    "critical,digitalSignature") ||
      !AddExtension(cert.get(), issuer, NID_ext_key_usage,
                    server ? "serverAuth,clientAuth" : "clientAuth") ||
      !AddExtension(cert.get(), issuer, NID_subject_key_identifier, "hash") ||
      !AddExtension(cert.get(), issuer, NID_authority_key_identifier,
                    "keyid:always") ||
      !AddAlternativeNames(cert.get(), FormatIdentity(identity), names) ||
      X509_sign(cert.get(), state_->key.get(), EVP_sha256()) == 0) {
    return OpenSslError("issuing a certificate");
  }
  KeyAndCertificate issued;
  LOCKSTEP_ASSIGN_OR_RETURN(issued.key, x509::WriteKey(key.get()));
  LOCKSTEP_ASSIGN_OR_RETURN(issued.certificate,
                            x509::WriteCertificate(cert.get()));
  return issued;
}

StatusOr<CredentialPaths> IssueInto(FileSystem* files, const std::string& dir,
                                    const CertificateAuthority& ca,
                                    const LeafRequest& request, WallTime now) {
  LOCKSTEP_ASSIGN_OR_RETURN(const KeyAndCertificate issued,
                            ca.Issue(request, now));
  const CredentialPaths paths = CredentialPathsIn(dir);
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(dir, 0700));
  LOCKSTEP_RETURN_IF_ERROR(
      files->WriteAtomic(paths.ca, ca.certificate(), 0644));
  LOCKSTEP_RETURN_IF_ERROR(files->WriteAtomic(paths.key, issued.key, 0600));
  LOCKSTEP_RETURN_IF_ERROR(
      files->WriteAtomic(paths.certificate, issued.certificate, 0644));
  return paths;
}

}  // namespace lockstep::pki
