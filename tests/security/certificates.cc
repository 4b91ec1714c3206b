#include "tests/security/certificates.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <openssl/pem.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "common/base/file.h"
#include "common/pki/x509.h"

namespace lockstep {
namespace {

namespace x509 = pki::x509;

void Must(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "IssueRaw: %s\n", what);
  std::abort();
}

std::string ReadOrDie(const std::string& path) {
  auto text = RealFileSystem()->Read(path);
  Must(text.ok(), path.c_str());
  return *std::move(text);
}

time_t Seconds(WallTime time) {
  return static_cast<time_t>(ToUnixNanos(time) / 1'000'000'000);
}

void Extend(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  Must(extension != nullptr, value.c_str());
  Must(X509_add_ext(cert, extension, -1) == 1, "adding an extension");
  X509_EXTENSION_free(extension);
}

}  // namespace

pki::KeyAndCertificate IssueRaw(const std::string& ca_dir,
                                const RawCertificate& request) {
  const auto roots = x509::ReadCertificates(ReadOrDie(ca_dir + "/ca.crt"));
  const auto ca_key = x509::ReadKey(ReadOrDie(ca_dir + "/ca.key"));
  Must(roots.ok() && ca_key.ok(), "reading the CA");
  X509* const issuer = roots->front().get();
  const x509::KeyPtr key(EVP_EC_gen("P-256"));
  const x509::CertPtr cert(X509_new());
  Must(key != nullptr && cert != nullptr, "making a key");
  static long serial = 1000;
  X509_set_version(cert.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), ++serial);
  ASN1_TIME_set(X509_getm_notBefore(cert.get()), Seconds(request.not_before));
  ASN1_TIME_set(X509_getm_notAfter(cert.get()), Seconds(request.not_after));
  X509_set_pubkey(cert.get(), key.get());
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(cert.get()), "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>("raw"), -1, -1, 0);
  X509_set_issuer_name(cert.get(), X509_get_subject_name(issuer));
  Extend(cert.get(), issuer, NID_basic_constraints, "critical,CA:FALSE");
  Extend(cert.get(), issuer, NID_key_usage, "critical,digitalSignature");
  Extend(cert.get(), issuer, NID_ext_key_usage,
         request.server ? "serverAuth,clientAuth" : "clientAuth");
  std::string names = "DNS:raw";
  for (const std::string& uri : request.uris) names += ",URI:" + uri;
  Extend(cert.get(), issuer, NID_subject_alt_name, names);
  Must(X509_sign(cert.get(), ca_key->get(), EVP_sha256()) != 0, "signing");
  auto key_pem = x509::WriteKey(key.get());
  auto cert_pem = x509::WriteCertificate(cert.get());
  Must(key_pem.ok() && cert_pem.ok(), "writing PEM");
  return {*std::move(key_pem), *std::move(cert_pem)};
}

std::shared_ptr<grpc::Channel> RawChannel(const std::string& target,
                                          const std::string& ca,
                                          const pki::KeyAndCertificate* leaf) {
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = ca;
  if (leaf != nullptr) {
    options.pem_private_key = leaf->key;
    options.pem_cert_chain = leaf->certificate;
  }
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(pki::kCoordinatorDnsName);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels with equal arguments would share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::SslCredentials(options),
                                   arguments);
}

}  // namespace lockstep
