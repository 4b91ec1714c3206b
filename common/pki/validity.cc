#include "common/pki/validity.h"

#include <netdb.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/base/fd.h"
#include "common/base/host_port.h"
#include "common/pki/ca.h"
#include "common/pki/x509.h"

namespace lockstep {
namespace {

// Reads and writes that take longer fail, and so does connecting.
void SetPatience(int fd, Duration patience) {
  const auto micros =
      std::max<int64_t>(1, patience / std::chrono::microseconds(1));
  const timeval limit{static_cast<time_t>(micros / 1'000'000),
                      static_cast<suseconds_t>(micros % 1'000'000)};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

Fd ConnectTo(const HostPort& target, Duration patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(),
                  &hints, &found) != 0) {
    return Fd();
  }
  const std::unique_ptr<addrinfo, x509::Freer<freeaddrinfo>> list(found);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Fd fd(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0));
    if (!fd) continue;
    SetPatience(fd.get(), patience);
    if (connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
  }
  return Fd();
}

// OpenSSL writes to a socket that the peer has closed: within this, no signal
// ends the program for it.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    const timespec none{};
    if (!was_pending_) (void)sigtimedwait(&set_, nullptr, &none);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

// What the server shows; null: nothing. The handshake need not succeed, as a
// coordinator wants a certificate of ours.
x509::CertPtr Peek(int fd) {
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  const std::unique_ptr<SSL_CTX, x509::Freer<SSL_CTX_free>> context(
      SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return nullptr;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  const std::unique_ptr<SSL, x509::Freer<SSL_free>> tls(SSL_new(context.get()));
  if (tls == nullptr || SSL_set_fd(tls.get(), fd) != 1 ||
      SSL_set_tlsext_host_name(tls.get(), kCoordinatorDnsName) != 1 ||
      SSL_set_alpn_protos(tls.get(), kHttp2, sizeof(kHttp2)) != 0) {
    return nullptr;
  }
  const NoSigpipe guard;
  (void)SSL_connect(tls.get());
  return x509::CertPtr(SSL_get1_peer_certificate(tls.get()));
}

}  // namespace

Status CheckCertificateDates(const std::string& pem, std::string_view what,
                             std::string_view renew, WallTime now) {
  const x509::ErrorQueueGuard guard;
  const auto certificates = x509::ReadCertificates(pem);
  if (!certificates.ok()) return OkStatus();
  return x509::CheckDates(certificates->front().get(), what, renew, now);
}

Status CheckServerDates(const std::string& address, WallTime now,
                        Duration patience) {
  const x509::ErrorQueueGuard guard;
  const auto target = ParseHostPort(address);
  if (!target.ok()) return OkStatus();
  const Fd fd = ConnectTo(*target, patience);
  if (!fd) return OkStatus();
  const x509::CertPtr certificate = Peek(fd.get());
  if (certificate == nullptr) return OkStatus();
  return x509::CheckDates(
      certificate.get(), "the certificate of the coordinator at " + address,
      "issue a new one for it with `lockstep cert issue` and start it again",
      now);
}

}  // namespace lockstep
