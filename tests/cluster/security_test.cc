// Who may talk to a cluster.
#include <grpcpp/grpcpp.h>

#include "common/pki/ca.h"
#include "common/pki/identity.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using cli::Client;
using cli::ClientOptions;
using pki::CertificateAuthority;
using pki::Identity;
using pki::kCoordinatorDnsName;
using pki::LeafRequest;
using pki::UserRole;
using ::testing::HasSubstr;

class SecurityTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (HasFatalFailure()) return;
    good_ = cluster()->client_options();
    good_.timeout = std::chrono::seconds(5);
  }
  // A certificate of the cluster's own CA.
  ClientOptions Issued(const Identity& identity, const std::string& name) {
    const auto ca = CertificateAuthority::Load(
        RealFileSystem(), cluster()->layout().CaDir(), Now());
    EXPECT_TRUE(ca.ok()) << ca.status();
    return ca.ok() ? IssuedBy(*ca, identity, name) : ClientOptions();
  }
  ClientOptions IssuedBy(const CertificateAuthority& ca,
                         const Identity& identity, const std::string& name) {
    LeafRequest request;
    request.identity = identity;
    const auto paths =
        IssueInto(RealFileSystem(), Path(name), ca, request, Now());
    EXPECT_TRUE(paths.ok()) << paths.status();
    ClientOptions options = good_;
    if (!paths.ok()) return options;
    options.ca = paths->ca;
    options.certificate = paths->certificate;
    options.key = paths->key;
    return options;
  }
  ClientOptions User(UserRole role, const std::string& name) {
    return Issued(UserIdentity(cluster()->record().cluster, role, name), name);
  }
  Status List(const ClientOptions& options) {
    const auto client = Client::Connect(options);
    if (!client.ok()) return client.status();
    return (*client)->ListJobs().status();
  }
  Status TrySubmit(const ClientOptions& options, const std::string& name) {
    const auto client = Client::Connect(options);
    if (!client.ok()) return client.status();
    return (*client)->SubmitJob(Shell(name, 1, "true")).status();
  }
  static WallTime Now() { return SystemClock().Now().wall; }

  ClientOptions good_;
};

TEST_F(SecurityTest, WithoutTlsNobodyGetsIn) {
  EXPECT_TRUE(List(good_).ok());
  ClientOptions plain = good_;
  plain.insecure_loopback = true;
  EXPECT_EQ(List(plain).code(), StatusCode::kUnavailable);
}

TEST_F(SecurityTest, WithoutACertificateNobodyGetsIn) {
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = ReadFile(good_.ca);
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kCoordinatorDnsName);
  const auto stub = v1::JobService::NewStub(grpc::CreateCustomChannel(
      good_.address, grpc::SslCredentials(tls), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(5));
  v1::ListJobsResponse response;
  const grpc::Status status = stub->ListJobs(&context, {}, &response);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.error_code() == grpc::StatusCode::UNAVAILABLE ||
              status.error_code() == grpc::StatusCode::UNAUTHENTICATED)
      << status.error_code() << " " << status.error_message();
}

TEST_F(SecurityTest, AnotherCaIsNotOurs) {
  const std::string name = cluster()->record().cluster;
  const auto other = CertificateAuthority::Create(name, Now());
  ASSERT_TRUE(other.ok()) << other.status();
  const Identity admin = UserIdentity(name, UserRole::kAdmin, "mallory");
  ClientOptions stranger = IssuedBy(*other, admin, "mallory");
  // It does not trust the coordinator ...
  EXPECT_EQ(List(stranger).code(), StatusCode::kUnavailable);
  // ... and where it does, the coordinator does not trust it.
  stranger.ca = Path("both.crt");
  WriteFile(stranger.ca, ReadFile(good_.ca) + other->certificate());
  const Status status = List(stranger);
  EXPECT_TRUE(status.code() == StatusCode::kUnavailable ||
              status.code() == StatusCode::kUnauthenticated)
      << status;
  EXPECT_TRUE(List(good_).ok());
}

TEST_F(SecurityTest, AWorkerIsNoUser) {
  ClientOptions worker = good_;
  const std::string tls = cluster()->layout().TlsDir("worker-0");
  worker.ca = tls + "/ca.crt";
  worker.certificate = tls + "/tls.crt";
  worker.key = tls + "/tls.key";
  EXPECT_EQ(List(worker).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(TrySubmit(worker, "stolen").code(), StatusCode::kPermissionDenied);
}

TEST_F(SecurityTest, RolesSayWhatAUserMay) {
  const ClientOptions viewer = User(UserRole::kViewer, "vera");
  EXPECT_TRUE(List(viewer).ok());
  EXPECT_EQ(TrySubmit(viewer, "vera").code(), StatusCode::kPermissionDenied);

  const ClientOptions ann = User(UserRole::kSubmitter, "ann");
  const auto anns = Client::Connect(ann);
  ASSERT_TRUE(anns.ok()) << anns.status();
  ASSERT_TRUE((*anns)->SubmitJob(Program("hers", 1, {"sleep", "1000"})).ok());
  EXPECT_THAT(Get("hers").owner(), HasSubstr("ann"));
  const auto bob = Client::Connect(User(UserRole::kSubmitter, "bob"));
  ASSERT_TRUE(bob.ok()) << bob.status();
  EXPECT_TRUE((*bob)->GetJob("hers").ok());
  EXPECT_EQ((*bob)->CancelJob("hers").status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_TRUE((*anns)->CancelJob("hers").ok());
  WaitEnd("hers", v1::JOB_STATE_CANCELLED);
  // A call is recorded after its caller has the answer; a daemon that stops
  // ends its calls first.
  StopDaemon("coordinator");
  const std::string audit =
      ReadFile(cluster()->layout().DaemonDir("coordinator") + "/audit.log");
  for (
      const char* text :
      {R"("caller":"user ann (submitter)",
       R"("method":"/lockstep.v1.JobService/CancelJob","target":"hers","code":"OK")",
       R"("caller":"user bob (submitter)",
       R"("code":"PERMISSION_DENIED","refused":true)"}) {
    EXPECT_THAT(audit, HasSubstr(text));
  }
  StartDaemon("coordinator");
}

// The coordinator is known by its name: nobody else may pose as it.
TEST_F(SecurityTest, AWorkerCannotPoseAsTheCoordinator) {
  StopDaemon("coordinator");
  const std::string tls = cluster()->layout().TlsDir("worker-0");
  grpc::SslServerCredentialsOptions server_tls;
  server_tls.pem_root_certs = ReadFile(tls + "/ca.crt");
  server_tls.pem_key_cert_pairs.push_back(
      {ReadFile(tls + "/tls.key"), ReadFile(tls + "/tls.crt")});
  v1::JobService::Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(good_.address,
                           grpc::SslServerCredentials(server_tls));
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const Status status = List(good_);
  // Unimplemented would mean that it was believed.
  EXPECT_TRUE(status.code() == StatusCode::kUnavailable ||
              status.code() == StatusCode::kUnauthenticated)
      << status;
  server->Shutdown(std::chrono::system_clock::now());
  server->Wait();
  StartDaemon("coordinator");
}

}  // namespace
}  // namespace lockstep
