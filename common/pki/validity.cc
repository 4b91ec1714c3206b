#include "common/pki/validity.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/host_port.h"
#include "common/pki/ca.h"
#include "common/pki/x509.h"

namespace lockstep::pki {
namespace {

// Waits for `events` of `fd`. Returns false at the deadline.
bool AwaitEvents(int fd, short events, MonoTime deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - MonotonicNow());
    if (left.count() <= 0) return false;
    pollfd waiting{fd, events, 0};
    const int ready = ::poll(
        &waiting, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

using Addresses = std::unique_ptr<addrinfo, x509::Freer<freeaddrinfo>>;

// One resolver query. glibc holds it until it is answered.
struct Lookup {
  std::string host;
  std::string port;
  addrinfo hints{};
  gaicb request{};
};

// Returns null if there are none by the deadline.
Addresses Resolve(const HostPort& target, MonoTime deadline) {
  auto lookup = std::make_unique<Lookup>();
  lookup->host = target.host;
  lookup->port = std::to_string(target.port);
  lookup->hints.ai_socktype = SOCK_STREAM;
  lookup->hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(lookup->host.c_str(), lookup->port.c_str(), &lookup->hints,
                  &found) == 0) {
    return Addresses(found);
  }
  // The system's settings determine how long a look-up takes: many seconds if a
  // name server does not answer.
  lookup->hints.ai_flags = 0;
  lookup->request.ar_name = lookup->host.c_str();
  lookup->request.ar_service = lookup->port.c_str();
  lookup->request.ar_request = &lookup->hints;
  gaicb* requests[] = {&lookup->request};
  if (getaddrinfo_a(GAI_NOWAIT, requests, 1, nullptr) != 0) return nullptr;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        deadline - MonotonicNow());
    if (left.count() <= 0) break;
    const timespec wait{static_cast<time_t>(left.count() / 1'000'000'000),
                        static_cast<long>(left.count() % 1'000'000'000)};
    const int state = gai_suspend(requests, 1, &wait);
    if (state != 0 && state != EAI_INTR && state != EAI_ALLDONE) break;
    const int error = gai_error(&lookup->request);
    if (error == 0) return Addresses(lookup->request.ar_result);
    if (error != EAI_INPROGRESS) return nullptr;
  }
  // An unanswered query that cannot be cancelled stays until exit.
  const int cancelled = gai_cancel(&lookup->request);
  if (cancelled == EAI_NOTCANCELED) {
    (void)lookup.release();
  } else if (cancelled == EAI_ALLDONE && gai_error(&lookup->request) == 0) {
    return Addresses(lookup->request.ar_result);
  }
  return nullptr;
}

Fd ConnectTo(const HostPort& target, MonoTime deadline) {
  const Addresses list = Resolve(target, deadline);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Fd fd(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                 0));
    if (!fd) continue;
    if (connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
    if (errno != EINPROGRESS || !AwaitEvents(fd.get(), POLLOUT, deadline)) {
      continue;
    }
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 &&
        error == 0) {
      return fd;
    }
  }
  return Fd();
}

// OpenSSL writes to a socket that the peer may have closed. While this lives,
// SIGPIPE does not end the program.
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

// Returns the server's certificate, or null. The handshake need not succeed,
// because a coordinator requires a client certificate.
x509::CertPtr Peek(int fd, MonoTime deadline) {
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
  for (;;) {
    const int done = SSL_connect(tls.get());
    if (done == 1) break;
    const int wants = SSL_get_error(tls.get(), done);
    if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE) break;
    const short events = wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    // The deadline holds however often a byte arrives.
    if (!AwaitEvents(fd, events, deadline)) break;
  }
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
  const MonoTime deadline = MonotonicNow() + patience;
  const Fd fd = ConnectTo(*target, deadline);
  if (!fd) return OkStatus();
  const x509::CertPtr certificate = Peek(fd.get(), deadline);
  if (certificate == nullptr) return OkStatus();
  return x509::CheckDates(
      certificate.get(), "the certificate of the coordinator at " + address,
      "issue a new one with `lockstep cert issue` and restart the coordinator",
      now);
}

}  // namespace lockstep::pki
