// Deliveries to real sockets: an HTTP and an SMTP server of a few lines each.
#include "server/notify/delivery.h"

#include <absl/strings/escaping.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using testing::Not;

// Serves one connection. Every read waits 10 s at most.
class OneConnection {
 public:
  using Serve = std::function<void(OneConnection*)>;

  explicit OneConnection(Serve serve) {
    listener_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), any, size), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), any, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      if (!Readable(listener_.get())) return;
      peer_ = Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      serve(this);
      peer_ = Fd();
    });
  }
  ~OneConnection() { Join(); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  int port() const { return port_; }

  void Send(const std::string& text) {
    EXPECT_EQ(send(peer_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // With its end.
  std::string ReadUntil(const std::string& end) {
    size_t found;
    while ((found = buffer_.find(end)) == std::string::npos) {
      if (!Fill()) return std::exchange(buffer_, "");
    }
    const std::string part = buffer_.substr(0, found + end.size());
    buffer_.erase(0, found + end.size());
    return part;
  }
  std::string ReadBytes(size_t count) {
    while (buffer_.size() < count && Fill()) {
    }
    return std::exchange(buffer_, "");
  }

 private:
  static bool Readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return poll(&one, 1, 10'000) == 1;
  }
  bool Fill() {
    char bytes[4096];
    if (!Readable(peer_.get())) return false;
    const ssize_t got = recv(peer_.get(), bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(got));
    return true;
  }

  Fd listener_;
  Fd peer_;
  int port_ = 0;
  std::string buffer_;
  std::thread thread_;
};

// Takes one POST and answers with `status`.
class HttpReceiver {
 public:
  explicit HttpReceiver(std::string status)
      : connection_([this, status](OneConnection* c) {
          head = c->ReadUntil("\r\n\r\n");
          const size_t at = head.find("Content-Length: ");
          if (at != std::string::npos) {
            body = c->ReadBytes(strtoul(head.c_str() + at + 16, nullptr, 10));
          }
          c->Send("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n");
        }) {}
  std::string url() const {
    return fmt::format("http://127.0.0.1:{}/hook", connection_.port());
  }
  void Join() { connection_.Join(); }
  // The value of a header, in small letters.
  std::string Header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }

  std::string head;
  std::string body;

 private:
  OneConnection connection_;
};

Notification Stalled() {
  Notification n;
  n.id = "uid-stalled-7";
  n.time = FromUnixNanos(1'795'000'000'000'000'000);
  n.kind = NotificationKind::kStalled;
  n.cluster = "lab";
  n.job = "fashion";
  n.owner = "user/ann";
  n.text = "rank 1 waits in load_batch (hang.py:6)";
  n.cost = "3.20 USD";
  return n;
}

const WallTime kDeliveryNow = FromUnixNanos(1'795'000'005'000'000'000);
const std::atomic<bool> kGoOn{false};

TEST(DeliveryTest, AWebhookIsSigned) {
  HttpReceiver server("200 OK");
  Receiver receiver;
  receiver.way = WebhookReceiver{server.url(), "s3cret"};
  const Status status = Deliver(receiver, Stalled(), kDeliveryNow, kGoOn);
  ASSERT_TRUE(status.ok()) << status;
  server.Join();
  EXPECT_THAT(server.head, testing::StartsWith("POST /hook HTTP/1.1\r\n"));
  EXPECT_EQ(server.Header("webhook-id"), "uid-stalled-7");
  EXPECT_EQ(server.Header("webhook-timestamp"), "1795000005");
  EXPECT_EQ(server.Header("webhook-signature"),
            SignatureOf("s3cret", "uid-stalled-7", 1795000005, server.body));
  EXPECT_EQ(*NotificationOf(server.body), Stalled());
}

// Made by `printf %s ID.TIME.BODY | openssl dgst -sha256 -hmac KEY -binary |
// base64`.
TEST(DeliveryTest, TheSignatureIsTheStandards) {
  EXPECT_EQ(SignatureOf("key", "msg_1", 1700000000, "{\"a\":1}"),
            "v1,KSgv0SSgWzG5LPnm9tfWJRfBlWqAqHz+OlObgspQi/g=");
}

TEST(DeliveryTest, SlackGetsTheText) {
  HttpReceiver server("200 OK");
  Receiver receiver;
  receiver.text = "{title}: {text}";
  receiver.way = SlackReceiver{server.url()};
  ASSERT_TRUE(Deliver(receiver, Stalled(), kDeliveryNow, kGoOn).ok());
  server.Join();
  EXPECT_EQ(nlohmann::json::parse(server.body)["text"],
            "job fashion stands still: rank 1 waits in load_batch (hang.py:6)");
}

TEST(DeliveryTest, AnswersSayWhetherToTryAgain) {
  const auto answer = [](const std::string& status) {
    HttpReceiver server(status);
    Receiver receiver;
    receiver.way = WebhookReceiver{server.url(), ""};
    const Status result = Deliver(receiver, Stalled(), kDeliveryNow, kGoOn);
    server.Join();
    EXPECT_EQ(server.Header("webhook-signature"), "") << "without a secret";
    return result;
  };
  EXPECT_EQ(answer("503 Busy").code(), StatusCode::kUnavailable);
  EXPECT_EQ(answer("429 Slowly").code(), StatusCode::kUnavailable);
  const Status refused = answer("404 Not Found");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("404"));
  // Its address is a secret.
  EXPECT_THAT(Message(refused), Not(HasSubstr("/hook")));
  // Followed, a redirect could lead anywhere.
  EXPECT_EQ(answer("302 Found").code(), StatusCode::kFailedPrecondition);
  Receiver nowhere;
  nowhere.way = WebhookReceiver{"http://127.0.0.1:1/", ""};
  EXPECT_EQ(Deliver(nowhere, Stalled(), kDeliveryNow, kGoOn).code(),
            StatusCode::kUnavailable);
}

TEST(DeliveryTest, MailArrives) {
  std::string commands, message;
  OneConnection server([&](OneConnection* c) {
    c->Send("220 mail\r\n");
    for (;;) {
      const std::string line = c->ReadUntil("\r\n");
      if (line.empty()) return;
      commands += line;
      if (line.starts_with("EHLO")) {
        c->Send("250 mail\r\n");
      } else if (line.starts_with("DATA")) {
        c->Send("354 go on\r\n");
        message = c->ReadUntil("\r\n.\r\n");
        c->Send("250 taken\r\n");
      } else if (line.starts_with("QUIT")) {
        return c->Send("221 bye\r\n");
      } else {
        c->Send("250 fine\r\n");
      }
    }
  });
  Receiver receiver;
  MailReceiver mail;
  mail.server = fmt::format("smtp://127.0.0.1:{}", server.port());
  mail.from = "lockstep@lab";
  mail.to = {"{user}@lab", "ops@lab"};
  receiver.way = mail;
  const Status status = Deliver(receiver, Stalled(), kDeliveryNow, kGoOn);
  ASSERT_TRUE(status.ok()) << status;
  server.Join();
  EXPECT_THAT(commands, HasSubstr("MAIL FROM:<lockstep@lab>"));
  EXPECT_THAT(commands, HasSubstr("RCPT TO:<ann@lab>\r\nRCPT TO:<ops@lab>"));
  EXPECT_THAT(message, HasSubstr("Subject: [lockstep lab] job fashion stands"));
  EXPECT_THAT(message, HasSubstr("Date: Wed, 18 Nov 2026 11:06:45 +0000"));
  std::string body = message.substr(message.find("\r\n\r\n") + 4);
  std::erase_if(body,
                [](char c) { return c == '\r' || c == '\n' || c == '.'; });
  std::string text;
  ASSERT_TRUE(absl::Base64Unescape(body, &text)) << body;
  EXPECT_THAT(text, HasSubstr("rank 1 waits in load_batch (hang.py:6)\n"));
}

TEST(DeliveryTest, NamesFromOutsideBreakNoMail) {
  MailReceiver mail;
  mail.from = "a@b";
  Notification n = Stalled();
  n.job = "x\r\nBcc: all@lab";
  EXPECT_THAT(MailOf(mail, {"c@d"}, "text", n, kDeliveryNow),
              Not(HasSubstr("\r\nBcc")));
  n.owner = "user/ann> evil@lab";
  mail.to = {"{user}@lab"};
  Receiver receiver;
  receiver.way = mail;
  EXPECT_EQ(Deliver(receiver, n, kDeliveryNow, kGoOn).code(),
            StatusCode::kFailedPrecondition);
}

TEST(DeliveryTest, ACommandGetsTheJson) {
  char dir[] = "/tmp/lockstep-command-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string file = JoinPath(dir, "got");
  Receiver receiver;
  receiver.way = CommandReceiver{{"/bin/sh", "-c",
                                  "cat > " + file + "; echo \"$1\" >> " + file,
                                  "sh", "{kind}"}};
  const Status status = Deliver(receiver, Stalled(), kDeliveryNow, kGoOn);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(*RealFileSystem()->Read(file), ToJson(Stalled()) + "\nstalled\n");
  receiver.way = CommandReceiver{{"/bin/sh", "-c", "exit 3"}};
  const Status failed = Deliver(receiver, Stalled(), kDeliveryNow, kGoOn);
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(failed), HasSubstr("exited with code 3"));
  receiver.way = CommandReceiver{{"/no/program"}};
  EXPECT_EQ(Deliver(receiver, Stalled(), kDeliveryNow, kGoOn).code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(RealFileSystem()->RemoveAll(dir).ok());
}

// The coordinator's end does not wait for a receiver that is slow.
TEST(DeliveryTest, AStopEndsWhatRuns) {
  std::atomic<bool> stop{false};
  OneConnection silent([&](OneConnection* c) {
    c->ReadUntil("\r\n\r\n");
    stop = true;
    EXPECT_EQ(c->ReadUntil("never").find("never"), std::string::npos);
  });
  Receiver receiver;
  receiver.way =
      WebhookReceiver{fmt::format("http://127.0.0.1:{}/", silent.port()), ""};
  const MonoTime before = MonotonicNow();
  EXPECT_EQ(Deliver(receiver, Stalled(), kDeliveryNow, stop).code(),
            StatusCode::kUnavailable);
  receiver.way = CommandReceiver{{"/bin/sleep", "1000"}};
  EXPECT_EQ(Deliver(receiver, Stalled(), kDeliveryNow, stop).code(),
            StatusCode::kUnavailable);
  EXPECT_LT(MonotonicNow() - before, kDeliveryTime / 2);
}

}  // namespace
}  // namespace lockstep::server
