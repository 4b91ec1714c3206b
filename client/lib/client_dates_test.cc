// What is said of a coordinator whose certificate is out of its dates: gRPC
// only says that it cannot be verified.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "client/lib/client.h"
#include "common/base/file.h"
#include "common/pki/ca.h"
#include "common/pki/identity.h"
#include "lockstep/v1/job.grpc.pb.h"

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""h;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Duration kDay = 24h;

class ClientDatesTest : public testing::Test {
 protected:
  ClientDatesTest()
      : now_(SystemClock().Now().wall),
        ca_(*pki::CertificateAuthority::Create("test", now_ - 500 * kDay)) {}
  void SetUp() override {
    char name[] = "/tmp/lockstep-dates-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    pki::LeafRequest request;
    request.identity = UserIdentity("test", pki::UserRole::kAdmin, "ann");
    const auto leaf = ca_.Issue(request, now_);
    ASSERT_TRUE(leaf.ok()) << leaf.status();
    Write("ca.crt", ca_.certificate());
    Write("tls.crt", leaf->certificate);
    Write("tls.key", leaf->key);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(
        RealFileSystem()->WriteAtomic(JoinPath(dir_, name), text, 0600).ok());
  }
  // Of one whose certificate `ca` issued at `issued`.
  std::string CallOf(const pki::CertificateAuthority& ca, WallTime issued) {
    pki::LeafRequest request;
    request.identity = pki::CoordinatorIdentity("test", "main");
    const auto leaf = ca.Issue(request, issued);
    EXPECT_TRUE(leaf.ok()) << leaf.status();
    grpc::SslServerCredentialsOptions tls(
        GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    tls.pem_root_certs = ca.certificate();
    tls.pem_key_cert_pairs.push_back({leaf->key, leaf->certificate});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(tls),
                             &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
    ClientOptions options;
    options.address = fmt::format("127.0.0.1:{}", port);
    options.ca = JoinPath(dir_, "ca.crt");
    options.certificate = JoinPath(dir_, "tls.crt");
    options.key = JoinPath(dir_, "tls.key");
    const auto client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    const Status status = (*client)->GetJob("a").status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    return Message(status);
  }

  const WallTime now_;
  const pki::CertificateAuthority ca_;
  std::string dir_;
  v1::JobService::Service service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ClientDatesTest, ServersCertificateThatHasExpired) {
  const std::string said = CallOf(ca_, now_ - pki::kLeafLifetime - 2 * kDay);
  EXPECT_THAT(said, HasSubstr("the certificate of the coordinator at 127."));
  EXPECT_THAT(said, HasSubstr(" expired on " +
                              FormatWallTime(now_ - 2 * kDay).substr(0, 10)));
  EXPECT_THAT(said, HasSubstr("this machine's clock says " +
                              FormatWallTime(now_).substr(0, 10)));
}

TEST_F(ClientDatesTest, ServersCertificateThatIsNotValidYet) {
  const std::string said = CallOf(ca_, now_ + 2 * kDay);
  EXPECT_THAT(said, HasSubstr("the certificate of the coordinator at 127."));
  EXPECT_THAT(said, HasSubstr(" is valid from "));
  EXPECT_THAT(said, HasSubstr("set the clock"));
}

TEST_F(ClientDatesTest, AnotherCaIsStillAnotherCa) {
  const auto other = pki::CertificateAuthority::Create("test", now_ - kDay);
  ASSERT_TRUE(other.ok());
  const std::string said = CallOf(*other, now_);
  EXPECT_THAT(said, HasSubstr("has a certificate of another CA"));
  EXPECT_THAT(said, Not(HasSubstr("expired on")));
}

}  // namespace
}  // namespace lockstep::cli
