// One connection of an HTTP server: reads requests, writes answers.
#include <algorithm>
#include <array>
#include <string_view>

#include "common/http/engine_parts.h"

namespace lockstep::http {
namespace {

namespace asio = boost::asio;
namespace beast_http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Phase = ConnectionPhase;
using RequestParser = beast_http::request_parser<beast_http::empty_body>;

constexpr size_t kReadBytes = 4096;
// How long a client may take to close a connection that the server has closed,
// and how much it may send meanwhile.
constexpr Duration kFarewell = std::chrono::seconds(1);
constexpr size_t kFarewellBytes = 1 << 20;

std::string Field(const RequestParser& parser, beast_http::field name) {
  const auto value = parser.get()[name];
  return {value.data(), value.size()};
}

HttpHead HeadOf(const RequestParser& parser) {
  const auto& message = parser.get();
  HttpHead head;
  head.method = std::string(message.method_string());
  head.target = std::string(message.target());
  head.host = Field(parser, beast_http::field::host);
  head.authorization = Field(parser, beast_http::field::authorization);
  head.cookie = Field(parser, beast_http::field::cookie);
  head.accept_encoding = Field(parser, beast_http::field::accept_encoding);
  head.has_range = message.count(beast_http::field::range) > 0;
  return head;
}

}  // namespace

void HttpEngine::Connection::Start() {
  if (!tls_) return Listen();
  Enter(Phase::kHandshake, limits().handshake);
  tls_->async_handshake(asio::ssl::stream_base::server,
                        [self = shared_from_this()](error_code error) {
                          if (self->closed_) return;
                          if (error) return self->Close();
                          self->Listen();
                        });
}

// Waits for the first request of the connection or the next.
void HttpEngine::Connection::Listen() {
  const bool waits = parser_.has_value() && buffer_.empty();
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(limits().request_bytes));
  Enter(waits ? Phase::kIdle : Phase::kHead,
        waits ? limits().idle : limits().request);
  if (buffer_.empty()) return Read();
  Parse();
}

void HttpEngine::Connection::Read() {
  const size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  WithStream([&](auto& stream) {
    stream.async_read_some(
        asio::buffer(buffer_.data() + before, kReadBytes),
        [self = shared_from_this(), before](error_code error, size_t count) {
          self->buffer_.resize(before + (error ? 0 : count));
          self->OnBytes(error, count);
        });
  });
}

void HttpEngine::Connection::OnBytes(error_code error, size_t count) {
  if (closed_) return;
  if (error || count == 0) return Close();
  if (loop_->phase(id_) == Phase::kIdle) Enter(Phase::kHead, limits().request);
  Parse();
}

void HttpEngine::Connection::Parse() {
  error_code error;
  const size_t used = parser_->put(asio::buffer(buffer_), error);
  buffer_.erase(0, used);
  if (error == beast_http::error::need_more) error = {};
  const bool too_long = error == beast_http::error::header_limit ||
                        (!error && !parser_->is_header_done() &&
                         buffer_.size() >= limits().request_bytes);
  if (too_long) return Refuse(431, "the request's head is too long\n");
  if (error) return Refuse(400, "this is not an HTTP/1.1 request\n");
  if (!parser_->is_header_done()) return Read();
  Serve();
}

void HttpEngine::Connection::Serve() {
  const auto& message = parser_->get();
  if (message.method() == beast_http::verb::unknown) {
    return Refuse(400, "the method is not known\n");
  }
  if (message.count(beast_http::field::host) > 1) {
    return Refuse(400, "a request names one host\n");
  }
  // A request body is not read, so the connection closes after the answer.
  keep_alive_ = message.keep_alive() && parser_->is_done();
  head_only_ = message.method() == beast_http::verb::head;
  HttpHead head = HeadOf(*parser_);
  head.certified = tls_ && HasVerifiedPeer(tls_->native_handle());
  Handle(std::move(head));
}

void HttpEngine::Connection::Handle(HttpHead head) {
  auto answer = loop_->options().answer_at_once(head);
  if (answer) {
    return Send(MakeAnswerText(*std::move(answer), head.accept_encoding));
  }
  // A handler ends by itself.
  Enter(Phase::kHandling, std::chrono::hours(24));
  loop_->pool()->Add([self = shared_from_this(), head = std::move(head)] {
    if (self->closed_) return;
    HttpResponse response;
    try {
      response = self->loop_->options().answer(head);
    } catch (...) {
      // The cause is not for clients.
      response = {.status = 500, .body = "internal error\n"};
    }
    auto text = std::make_shared<AnswerText>(
        MakeAnswerText(std::move(response), head.accept_encoding));
    self->loop_->Post([self, text] { self->Send(std::move(*text)); });
  });
}

void HttpEngine::Connection::Refuse(int status, std::string why) {
  keep_alive_ = false;
  head_only_ = false;
  Send(MakeAnswerText({.status = status, .body = std::move(why)}, ""));
}

void HttpEngine::Connection::Send(AnswerText answer) {
  if (closed_) return;
  keep_alive_ = keep_alive_ && !loop_->stopping();
  answer_ = std::move(answer);
  if (head_only_) answer_.body.clear();
  answer_.head += keep_alive_ ? "Connection: keep-alive\r\n\r\n"
                              : "Connection: close\r\n\r\n";
  Enter(Phase::kWriting,
        loop_->stopping() ? limits().shutdown : limits().answer);
  WithStream([&](auto& stream) {
    asio::async_write(
        stream,
        std::array<asio::const_buffer, 2>{asio::buffer(answer_.head),
                                          asio::buffer(answer_.body)},
        [self = shared_from_this()](error_code error, size_t) {
          self->OnWritten(error);
        });
  });
  loop_->SetAnswerBytes(id_, answer_.head.size() + answer_.body.size());
}

void HttpEngine::Connection::OnWritten(error_code error) {
  answer_ = {};
  loop_->SetAnswerBytes(id_, 0);
  if (closed_) return;
  if (error) return Close();
  if (keep_alive_ && !loop_->stopping()) return Listen();
  Farewell();
}

// Closing a socket with unread bytes may discard the answer, so the client gets
// time to close first.
void HttpEngine::Connection::Farewell() {
  Enter(Phase::kFarewell, loop_->stopping() ? limits().shutdown : kFarewell);
  if (!tls_) return Drain();
  tls_->async_shutdown([self = shared_from_this()](error_code) {
    if (!self->closed_) self->Drain();
  });
}

void HttpEngine::Connection::Drain() {
  error_code ignored;
  if (drained_ == 0) socket_.shutdown(tcp::socket::shutdown_send, ignored);
  buffer_.resize(kReadBytes);
  socket_.async_read_some(
      asio::buffer(buffer_),
      [self = shared_from_this()](error_code error, size_t count) {
        if (self->closed_) return;
        self->drained_ += count;
        if (error || self->drained_ > kFarewellBytes) return self->Close();
        self->Drain();
      });
}

void HttpEngine::Connection::Close() {
  if (closed_.exchange(true)) return;
  error_code ignored;
  // The kernel discards the rest of an unfinished answer.
  if (loop_->phase(id_) == Phase::kWriting) {
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  }
  socket_.close(ignored);
  loop_->Remove(id_);
}

void HttpEngine::Connection::StopSoon() {
  const Phase phase = loop_->phase(id_);
  if (phase != Phase::kHandling && phase != Phase::kWriting) return Close();
  loop_->EndBy(id_, MonotonicNow() + limits().shutdown);
}

}  // namespace lockstep::http
