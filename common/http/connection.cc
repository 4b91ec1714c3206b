#include "common/http/connection.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

// How soon one that waits sees that the server stops.
constexpr Duration kGlance = std::chrono::milliseconds(100);
constexpr size_t kBufferBytes = 4096;

MonoTime NowMono() { return SystemClock().Now().mono; }

int VerifyMode(ClientAuth auth) {
  switch (auth) {
    case ClientAuth::kNone:
      return SSL_VERIFY_NONE;
    case ClientAuth::kRequest:
    case ClientAuth::kVerifyIfGiven:
      return SSL_VERIFY_PEER;
    case ClientAuth::kRequireAny:
    case ClientAuth::kRequireAndVerify:
      return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  }
  return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
}

}  // namespace

StatusOr<SslContext> MakeSslContext(const WebTls& tls) {
  SslContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return Internal("no TLS context");
  SSL_CTX_set_min_proto_version(
      context.get(), tls.only_tls13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  // One request for each connection: nothing to resume.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  const bool usable =
      SSL_CTX_use_certificate_chain_file(context.get(),
                                         tls.certificate.c_str()) == 1 &&
      SSL_CTX_use_PrivateKey_file(context.get(), tls.key.c_str(),
                                  SSL_FILETYPE_PEM) == 1 &&
      SSL_CTX_check_private_key(context.get()) == 1;
  ERR_clear_error();
  if (!usable) {
    return FailedPrecondition(
        "the certificate {} and key {} cannot be used: are both readable PEM, "
        "and do they belong together?",
        tls.certificate, tls.key);
  }
  const bool verifies = Verifies(tls.client_auth);
  SSL_verify_cb any = [](int, X509_STORE_CTX*) { return 1; };
  SSL_CTX_set_verify(context.get(), VerifyMode(tls.client_auth),
                     verifies ? nullptr : any);
  if (verifies) {
    STACK_OF(X509_NAME)* const names =
        SSL_load_client_CA_file(tls.client_ca.c_str());
    const bool loaded =
        names != nullptr &&
        SSL_CTX_load_verify_file(context.get(), tls.client_ca.c_str()) == 1;
    SSL_CTX_set_client_CA_list(context.get(), names);
    ERR_clear_error();
    if (!loaded) {
      return FailedPrecondition(
          "the client CA {} cannot be used: is it readable PEM?",
          tls.client_ca);
    }
  }
  return context;
}

bool OpenConnections::Add(int fd) {
  MutexLock lock(&mu_);
  if (stopped_) return false;
  open_.insert(fd);
  return true;
}

void OpenConnections::Remove(int fd) {
  MutexLock lock(&mu_);
  open_.erase(fd);
}

void OpenConnections::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  for (const int fd : open_) ::shutdown(fd, SHUT_RD);
}

Connection::Connection(int fd, SSL_CTX* context, OpenConnections* connections,
                       const ConnectionLimits& limits)
    : fd_(fd),
      connections_(connections),
      limits_(limits),
      read_by_(NowMono() + limits.request),
      left_(limits.request_bytes) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (context != nullptr) {
    ssl_ = SSL_new(context);
    if (ssl_ != nullptr) SSL_set_fd(ssl_, fd);
  }
}

Connection::~Connection() {
  if (ssl_ != nullptr) {
    ERR_clear_error();
    // After a failed handshake there is nothing to say.
    if (SSL_is_init_finished(ssl_)) SSL_shutdown(ssl_);
    SSL_free(ssl_);
    ERR_clear_error();
  }
  ::shutdown(fd_, SHUT_WR);
  // Bytes that nobody read would make close() take the answer back.
  char rest[kBufferBytes];
  for (int i = 0; i < 16 && ::recv(fd_, rest, sizeof(rest), 0) > 0; ++i) {
  }
}

bool Connection::Wait(short events, MonoTime deadline) {
  for (;;) {
    const MonoTime now = NowMono();
    if (now >= deadline) return false;
    const Duration slice = std::min(deadline - now, kGlance);
    pollfd waiting{fd_, events, 0};
    const int ready =
        ::poll(&waiting, 1,
               static_cast<int>(slice / std::chrono::milliseconds(1)) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (connections_->stopped()) {
      deadline = std::min(deadline, now + limits_.last_words);
    }
  }
}

bool Connection::Accept() {
  if (ssl_ == nullptr) return true;
  for (;;) {
    ERR_clear_error();
    const int result = SSL_accept(ssl_);
    if (result == 1) return true;
    const int why = SSL_get_error(ssl_, result);
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return false;
    if (connections_->stopped() ||
        !Wait(why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, read_by_)) {
      return false;
    }
  }
}

ssize_t Connection::Receive(char* to, size_t size) {
  for (;;) {
    short wanted = POLLIN;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int got = SSL_read(ssl_, to, static_cast<int>(size));
      if (got > 0) return got;
      const int why = SSL_get_error(ssl_, got);
      if (why == SSL_ERROR_ZERO_RETURN) return 0;
      if (why == SSL_ERROR_WANT_WRITE) {
        wanted = POLLOUT;
      } else if (why != SSL_ERROR_WANT_READ) {
        return -1;
      }
    } else {
      const ssize_t got = ::recv(fd_, to, size, 0);
      if (got >= 0) return got;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return -1;
    }
    if (!Wait(wanted, read_by_)) return -1;
  }
}

ssize_t Connection::Read(char* to, size_t size) {
  if (taken_ == buffer_.size()) {
    if (left_ == 0 || connections_->stopped()) return -1;
    buffer_.resize(std::min(left_, kBufferBytes));
    taken_ = 0;
    const ssize_t got = Receive(buffer_.data(), buffer_.size());
    buffer_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) return got;
    left_ -= buffer_.size();
  }
  const size_t given = std::min(size, buffer_.size() - taken_);
  std::memcpy(to, buffer_.data() + taken_, given);
  taken_ += given;
  return static_cast<ssize_t>(given);
}

bool Connection::Write(std::string_view bytes) {
  if (write_by_ == MonoTime{}) write_by_ = NowMono() + limits_.answer;
  while (!bytes.empty()) {
    // Also of one whose client takes a little all the time.
    if (connections_->stopped()) {
      write_by_ = std::min(write_by_, NowMono() + limits_.last_words);
    }
    if (NowMono() >= write_by_) return false;
    short wanted = POLLOUT;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int sent =
          SSL_write(ssl_, bytes.data(),
                    static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20)));
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
        continue;
      }
      const int why = SSL_get_error(ssl_, sent);
      if (why == SSL_ERROR_WANT_READ) {
        wanted = POLLIN;
      } else if (why != SSL_ERROR_WANT_WRITE) {
        return false;
      }
    } else {
      const ssize_t sent =
          ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
        continue;
      }
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        return false;
      }
    }
    if (!Wait(wanted, write_by_)) return false;
  }
  return true;
}

}  // namespace lockstep
