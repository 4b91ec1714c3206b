// Bytes of a caller that reach the log by way of gRPC: no line of the log is
// the caller's.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/rpc/grpc_log.h"
#include "tests/security/tls_socket.h"
#include "tests/service/fixture.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using testing::HasSubstr;
using testing::Not;

constexpr char kForged[] =
    "2026-11-24T00:00:00.000Z info coordinator: audit: user eve (admin) "
    "called /x: OK";

// A frame of HTTP/2 (RFC 9113, section 4.1).
std::string Frame(uint8_t type, uint8_t flags, uint32_t stream,
                  const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) {
    frame += static_cast<char>(payload.size() >> shift & 0xff);
  }
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    frame += static_cast<char>(stream >> shift & 0xff);
  }
  return frame + payload;
}

// Literal, never indexed, not Huffman coded (RFC 7541, section 6.2.3). Both
// are shorter than 127 bytes.
std::string Header(const std::string& name, const std::string& value) {
  EXPECT_LT(std::max(name.size(), value.size()), 127u);
  return std::string(1, '\x10') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

class LogSinkTest : public server::ServiceTest {
 protected:
  void SetUp() override {
    server::ServiceTest::SetUp();
    // The sink of the daemon, on a file in place of its stderr.
    path_ = JoinPath(dir_, "stderr");
    before_ = Fd(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
    const Fd file(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    ASSERT_GE(::dup2(file.get(), STDERR_FILENO), 0);
    InitLogging("coordinator", "info");
    RedirectGrpcLog(GrpcLog::kToOurs);
  }
  void TearDown() override {
    server::ServiceTest::TearDown();
    ::dup2(before_.get(), STDERR_FILENO);
  }

  // As the holder of a certificate that may only look.
  void Send(const std::string& bytes) {
    const SslContext context = ContextOf(
        CredentialsOf(UserIdentity("test", pki::UserRole::kViewer, "eve")));
    ASSERT_NE(context, nullptr);
    const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                        sizeof(address)),
              0)
        << strerror(errno);
    const SslPtr ssl(SSL_new(context.get()), SSL_free);
    SSL_set_fd(ssl.get(), fd.get());
    ASSERT_EQ(SSL_connect(ssl.get()), 1);
    ASSERT_EQ(
        SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size())),
        static_cast<int>(bytes.size()));
    // Open until the server has said something of it.
    EXPECT_TRUE(LogHas(":status"));
  }
  std::string Log() const { return RealFileSystem()->Read(path_).value(); }
  bool LogHas(const std::string& text) const {
    const MonoTime deadline = MonotonicNow() + server::kPatience;
    while (MonotonicNow() < deadline) {
      if (Log().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  Fd before_;
  std::string path_;
};

TEST_F(LogSinkTest, ACallerCannotForgeALine) {
  const std::string status =
      std::string("1\n") + kForged + "\n\x1b[2J\x9b" + "2J";
  // SETTINGS, then HEADERS with END_STREAM and END_HEADERS.
  Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(4, 0, 0, "") +
       Frame(1, 5, 1,
             Header(":method", "POST") + Header(":scheme", "https") +
                 Header(":path", "/lockstep.v1.JobService/GetJob") +
                 Header(":authority", "x") + Header(":status", status) +
                 Header("content-type", "application/grpc") +
                 Header("te", "trailers")));
  LOG_INFO("the end");
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("\\n" + std::string(kForged) + "\\n\\x1b"))
      << "the bytes have reached the log";
  std::istringstream lines(log);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_THAT(line, testing::MatchesRegex(
                          "20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:.]+Z "
                          "[a-z]+ coordinator: .*"));
    EXPECT_THAT(line, Not(testing::StartsWith(kForged)));
    for (const char c : line) {
      const auto byte = static_cast<unsigned char>(c);
      EXPECT_TRUE(byte >= 0x20 && byte < 0x7f) << line;
    }
  }
  EXPECT_GE(count, 2);
}

}  // namespace
}  // namespace lockstep
