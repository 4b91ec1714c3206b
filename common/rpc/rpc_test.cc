// Real sockets, real certificates: who gets in, who does not, and what each is
// told.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/pki/ca.h"
#include "common/rpc/audit_log.h"
#include "common/rpc/caller.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/worker.grpc.pb.h"

namespace lockstep {
namespace {

using pki::CertificateAuthority;
using pki::CoordinatorIdentity;
using pki::CredentialPathsIn;
using pki::Credentials;
using pki::Identity;
using pki::IssueInto;
using pki::kLeafLifetime;
using pki::UserRole;
using pki::WorkerIdentity;

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;
using testing::HasSubstr;

// Synchronous. Answers with who called, as it sees them.
class Jobs final : public v1::JobService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext* context,
                      const v1::GetJobRequest* request,
                      v1::Job* response) override {
    if (request->name() == "missing") {
      return ToGrpc(WithReason(NotFound("no job missing"), "NO_JOB"));
    }
    if (request->name() == "flaky" && ++tries < 4) {
      return ToGrpc(Unavailable("not now"));
    }
    if (request->name() == "busy") {
      ++tries;
      return ToGrpc(ResourceExhausted("too much"));
    }
    response->set_owner(Describe(CallerOf(*context)));
    return grpc::Status::OK;
  }
  grpc::Status SubmitJob(grpc::ServerContext*, const v1::SubmitJobRequest*,
                         v1::SubmitJobResponse*) override {
    ++submitted;
    return grpc::Status::OK;
  }
  grpc::Status WatchJobs(
      grpc::ServerContext* context, const v1::WatchJobsRequest*,
      grpc::ServerWriter<v1::WatchJobsResponse>* writer) override {
    v1::WatchJobsResponse synced;
    synced.set_synced(1);
    writer->Write(synced);
    // Ends when the client goes away or the server stops.
    while (!context->IsCancelled()) {
      ::poll(nullptr, 0, 5);
    }
    return grpc::Status::CANCELLED;
  }

  std::atomic<int> submitted = 0;
  std::atomic<int> tries = 0;
};

// Callback API, so that both kinds pass the same check.
class Workers final : public v1::WorkerService::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override {
    class Refuser final
        : public grpc::ServerBidiReactor<v1::WorkerMessage,
                                         v1::CoordinatorMessage> {
     public:
      explicit Refuser(const Status& status) { Finish(ToGrpc(status)); }
      void OnDone() override { delete this; }
    };
    ++connects;
    return new Refuser(Status(code, Describe(CallerOf(*context))));
  }

  std::atomic<int> connects = 0;
  std::atomic<StatusCode> code = StatusCode::kAborted;
};

class CountingObserver final : public CallObserver {
 public:
  void OnStarted(std::string_view method) override {
    MutexLock lock(&mu_);
    ++started_[std::string(method)];
  }
  void OnHandled(std::string_view method, StatusCode code, Duration) override {
    MutexLock lock(&mu_);
    ++handled_[fmt::format("{} {}", method, CodeName(code))];
    changed_.NotifyAll();
  }
  int Started(const std::string& method) {
    MutexLock lock(&mu_);
    return started_[method];
  }
  // Waits for it: a server tells after the client has its answer.
  bool Handled(const std::string& method_and_code, int count) {
    const auto deadline = MonotonicNow() + 60s;
    MutexLock lock(&mu_);
    while (handled_[method_and_code] < count) {
      if (!changed_.WaitUntil(&mu_, deadline)) break;
    }
    return handled_[method_and_code] == count;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::map<std::string, int> started_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> handled_ ABSL_GUARDED_BY(mu_);
};

Credentials Load(const std::string& dir, WallTime now) {
  auto loaded = LoadCredentials(RealFileSystem(), CredentialPathsIn(dir), now);
  EXPECT_TRUE(loaded.ok()) << Message(loaded.status());
  return loaded.value_or(Credentials());
}

class RpcTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { RedirectGrpcLog(GrpcLog::kSilent); }
  void SetUp() override {
    char name[] = "/tmp/lockstep-rpc-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    ca_ = MakeCa();
    server_ = StartServer(Issue(CoordinatorIdentity("prod", "main")));
  }
  void TearDown() override {
    server_.reset();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  std::unique_ptr<CertificateAuthority> MakeCa() {
    auto ca = CertificateAuthority::Create("prod", now_ - 48h);
    EXPECT_TRUE(ca.ok()) << Message(ca.status());
    return std::make_unique<CertificateAuthority>(std::move(*ca));
  }
  Credentials Issue(const Identity& identity, Duration lifetime = kLeafLifetime,
                    bool server = false) {
    const std::string dir =
        JoinPath(dir_, fmt::format("cert{}", ++certificates_));
    const auto paths = IssueInto(RealFileSystem(), dir, *ca_,
                                 {.identity = identity,
                                  .names = {},
                                  .lifetime = lifetime,
                                  .server = server},
                                 now_);
    EXPECT_TRUE(paths.ok()) << Message(paths.status());
    // As of when it was valid: the peer is to notice.
    return Load(dir, lifetime < Duration::zero() ? now_ + lifetime - 1s : now_);
  }
  std::unique_ptr<RpcServer> StartServer(
      std::optional<Credentials> credentials) {
    RpcServerOptions options;
    options.address = "127.0.0.1:0";
    options.insecure_loopback = !credentials.has_value();
    options.credentials = std::move(credentials);
    options.observer = &observer_;
    options.audit = audit_.get();
    auto server = RpcServer::Start(options, {&jobs_, &workers_});
    EXPECT_TRUE(server.ok()) << Message(server.status());
    return server.ok() ? std::move(*server) : nullptr;
  }

  std::shared_ptr<grpc::Channel> Channel(const Credentials& credentials,
                                         RpcServer* server = nullptr) {
    auto channel = MakeChannel(
        {(server == nullptr ? server_.get() : server)->address(), credentials});
    EXPECT_TRUE(channel.ok()) << Message(channel.status());
    return *channel;
  }
  std::shared_ptr<grpc::Channel> User(UserRole role) {
    return Channel(Issue(UserIdentity("prod", role, "ann")));
  }

  static StatusOr<std::string> Get(
      const std::shared_ptr<grpc::Channel>& channel,
      const std::string& name = "x") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    const Status s = FromGrpc(
        v1::JobService::NewStub(channel)->GetJob(&context, request, &job));
    if (!s.ok()) return s;
    return job.owner();
  }
  static Status Submit(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    v1::SubmitJobResponse response;
    return FromGrpc(v1::JobService::NewStub(channel)->SubmitJob(
        &context, v1::SubmitJobRequest(), &response));
  }
  static Status Connect(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;  // A stream needs no deadline.
    const auto stub = v1::WorkerService::NewStub(channel);
    return FromGrpc(stub->Connect(&context)->Finish());
  }

  const WallTime now_ = SystemClock().Now().wall;
  std::string dir_;
  int certificates_ = 0;
  std::unique_ptr<CertificateAuthority> ca_;
  Jobs jobs_;
  Workers workers_;
  CountingObserver observer_;
  // Null until a test opens it and starts a server of its own.
  std::unique_ptr<AuditLog> audit_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(RpcTest, TheRightCertificatePassesAndIsKnownByName) {
  const auto owner = Get(User(UserRole::kViewer));
  ASSERT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_EQ(*owner, "user ann (viewer)");
  EXPECT_EQ(Connect(Channel(Issue(WorkerIdentity("prod", "host-a")))),
            Aborted("worker host-a"));
}

TEST_F(RpcTest, RolesDecide) {
  const Status viewer = Submit(User(UserRole::kViewer));
  EXPECT_EQ(viewer.code(), StatusCode::kPermissionDenied) << Message(viewer);
  EXPECT_THAT(Message(viewer), HasSubstr("requires the role submitter"));
  // The check comes before the handler, not after it.
  EXPECT_EQ(jobs_.submitted, 0);
  EXPECT_TRUE(Submit(User(UserRole::kSubmitter)).ok());
  EXPECT_TRUE(Submit(User(UserRole::kAdmin)).ok());
  EXPECT_EQ(jobs_.submitted, 2);

  const auto worker = Channel(Issue(WorkerIdentity("prod", "host-a")));
  EXPECT_EQ(Get(worker).status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Connect(User(UserRole::kAdmin)).code(),
            StatusCode::kPermissionDenied);
}

TEST_F(RpcTest, AUnaryCallNeedsADeadline) {
  grpc::ClientContext context;
  v1::Job job;
  const Status s = FromGrpc(v1::JobService::NewStub(User(UserRole::kViewer))
                                ->GetJob(&context, v1::GetJobRequest(), &job));
  EXPECT_EQ(s.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(s), HasSubstr("needs a deadline"));
}

TEST_F(RpcTest, StrangersDoNotGetIn) {
  std::unique_ptr<CertificateAuthority> other_ca = MakeCa();
  std::swap(ca_, other_ca);
  const Credentials other =
      Issue(UserIdentity("prod", UserRole::kAdmin, "eve"));
  std::swap(ca_, other_ca);
  Credentials of_other_ca = other;
  of_other_ca.ca = ca_->certificate();
  const Credentials expired =
      Issue(UserIdentity("prod", UserRole::kAdmin, "ann"), -1h);
  const struct {
    const char* name;
    std::shared_ptr<grpc::Channel> channel;
  } cases[] = {
      {"trusts another CA", Channel(other)},
      {"of another CA", Channel(of_other_ca)},
      {"expired", Channel(expired)},
      {"plain text", grpc::CreateChannel(server_->address(),
                                         grpc::InsecureChannelCredentials())},
      {"no certificate",
       [&] {
         grpc::SslCredentialsOptions options;
         options.pem_root_certs = ca_->certificate();
         grpc::ChannelArguments arguments;
         return grpc::CreateCustomChannel(
             server_->address(), grpc::SslCredentials(options), arguments);
       }()},
  };
  // All at once: each is retried for a while.
  std::vector<std::future<StatusOr<std::string>>> answers;
  for (const auto& c : cases) {
    answers.push_back(
        std::async(std::launch::async, [&c] { return Get(c.channel); }));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const Status s = answers[i].get().status();
    EXPECT_EQ(s.code(), StatusCode::kUnavailable)
        << cases[i].name << ": " << Message(s);
  }
  EXPECT_EQ(observer_.Started("/lockstep.v1.JobService/GetJob"), 0);
}

TEST_F(RpcTest, NobodyElseCanPoseAsTheCoordinator) {
  const Credentials user = Issue(UserIdentity("prod", UserRole::kViewer, "v"));
  const struct {
    const char* name;
    Credentials server;
    const char* says;
  } cases[] = {
      {"worker", Issue(WorkerIdentity("prod", "host-a")), ""},
      {"worker that may serve",
       Issue(WorkerIdentity("prod", "host-a"), kLeafLifetime, true),
       "the server is worker host-a"},
      {"user",
       Issue(UserIdentity("prod", UserRole::kAdmin, "eve"), kLeafLifetime,
             true),
       "the server is user eve"},
      {"expired coordinator", Issue(CoordinatorIdentity("prod", "main"), -1h),
       ""},
  };
  std::vector<std::unique_ptr<RpcServer>> impostors;
  std::vector<std::future<StatusOr<std::string>>> answers;
  for (const auto& c : cases) {
    impostors.push_back(StartServer(c.server));
    ASSERT_NE(impostors.back(), nullptr);
    const auto channel = Channel(user, impostors.back().get());
    answers.push_back(
        std::async(std::launch::async, [channel] { return Get(channel); }));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const Status s = answers[i].get().status();
    EXPECT_EQ(s.code(), StatusCode::kUnavailable)
        << cases[i].name << ": " << Message(s);
    EXPECT_THAT(Message(s), HasSubstr(cases[i].says)) << cases[i].name;
  }
  EXPECT_TRUE(Get(Channel(user)).ok());
  EXPECT_EQ(observer_.Started("/lockstep.v1.JobService/GetJob"), 1);
}

TEST(CheckServerNamesTest, OnlyTheCoordinatorOfThisCluster) {
  const struct {
    std::vector<std::string_view> uris;
    bool ok;
  } cases[] = {
      {{"spiffe://prod/coordinator/main"}, true},
      {{"spiffe://prod/worker/main"}, false},
      {{"spiffe://other/coordinator/main"}, false},
      {{"spiffe://prod/coordinator/main", "spiffe://prod/worker/a"}, false},
      {{}, false},
      {{"junk"}, false},
  };
  for (const auto& c : cases) {
    const Status s = CheckServerNames(c.uris, "prod");
    EXPECT_EQ(s.ok(), c.ok) << Message(s);
  }
}

TEST_F(RpcTest, GarbageOnThePortHurtsNobody) {
  const std::string garbage[] = {
      std::string("\x16\x03\x01\x02\x00\x01\x00", 7) + std::string(600, '\xff'),
      "GET / HTTP/1.1\r\n\r\n", std::string(1 << 20, '\0'), ""};
  for (const std::string& bytes : garbage) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(server_->port()));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              0);
    // The server may close at any time: how much it took does not matter.
    (void)!::send(fd.get(), bytes.data(), bytes.size(),
                  MSG_NOSIGNAL | MSG_DONTWAIT);
    EXPECT_TRUE(Get(User(UserRole::kViewer)).ok());
  }
}

TEST_F(RpcTest, ReasonsReachTheClient) {
  const Status s = Get(User(UserRole::kViewer), "missing").status();
  EXPECT_EQ(s, WithReason(NotFound("no job missing"), "NO_JOB"));
}

TEST_F(RpcTest, OnlyUnavailableIsTriedAgain) {
  const auto viewer = User(UserRole::kViewer);
  const auto owner = Get(viewer, "flaky");
  EXPECT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_EQ(jobs_.tries, 4);
  jobs_.tries = 0;
  EXPECT_EQ(Get(viewer, "busy").status(), ResourceExhausted("too much"));
  EXPECT_EQ(jobs_.tries, 1);
}

// The worker's stream is its owner's to open again.
TEST_F(RpcTest, TheWorkersStreamIsNotRetriedForIt) {
  const auto worker = Channel(Issue(WorkerIdentity("prod", "a")));
  workers_.code = StatusCode::kUnavailable;
  EXPECT_EQ(Connect(worker).code(), StatusCode::kUnavailable);
  EXPECT_EQ(workers_.connects, 1);
}

TEST_F(RpcTest, CallsAreObserved) {
  const auto viewer = User(UserRole::kViewer);
  EXPECT_TRUE(Get(viewer).ok());
  Get(viewer, "missing").IgnoreError();
  Submit(viewer).IgnoreError();
  Connect(Channel(Issue(WorkerIdentity("prod", "a")))).IgnoreError();
  const std::string get = "/lockstep.v1.JobService/GetJob";
  const std::string submit = "/lockstep.v1.JobService/SubmitJob";
  EXPECT_TRUE(observer_.Handled(get + " OK", 1));
  EXPECT_TRUE(observer_.Handled(get + " NOT_FOUND", 1));
  EXPECT_TRUE(observer_.Handled(submit + " PERMISSION_DENIED", 1));
  EXPECT_TRUE(
      observer_.Handled("/lockstep.v1.WorkerService/Connect ABORTED", 1));
  EXPECT_EQ(observer_.Started(get), 2);
  EXPECT_EQ(observer_.Started(submit), 1);
}

TEST_F(RpcTest, CallsAreRecordedInTheAuditLog) {
  const std::string path = JoinPath(dir_, "audit.log");
  auto audit = AuditLog::Open({.path = path});
  ASSERT_TRUE(audit.ok()) << Message(audit.status());
  audit_ = std::move(*audit);
  server_ = StartServer(Issue(CoordinatorIdentity("prod", "main")));
  EXPECT_TRUE(Submit(User(UserRole::kSubmitter)).ok());
  EXPECT_FALSE(Submit(User(UserRole::kViewer)).ok());
  EXPECT_TRUE(Get(User(UserRole::kViewer)).ok()) << "changes nothing";
  // A call is recorded after its caller has the answer.
  server_.reset();
  std::istringstream text(RealFileSystem()->Read(path).value());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2u);
  const std::string all = lines[0] + lines[1];
  EXPECT_THAT(all, HasSubstr("\"caller\":\"user ann (submitter)\""));
  EXPECT_THAT(all, HasSubstr("\"code\":\"OK\",\"refused\":false"));
  EXPECT_THAT(all, HasSubstr("\"caller\":\"user ann (viewer)\""));
  EXPECT_THAT(all,
              HasSubstr("\"code\":\"PERMISSION_DENIED\",\"refused\":true"));
}

TEST_F(RpcTest, AViewerInALoopLeavesTheAuditLogAlone) {
  const std::string path = JoinPath(dir_, "audit.log");
  auto audit = AuditLog::Open({.path = path});
  ASSERT_TRUE(audit.ok()) << Message(audit.status());
  audit_ = std::move(*audit);
  server_ = StartServer(Issue(CoordinatorIdentity("prod", "main")));
  const auto viewer = User(UserRole::kViewer);
  const MonoTime begin = MonotonicNow();
  constexpr int kCalls = 50;
  for (int i = 0; i < kCalls; ++i) EXPECT_FALSE(Submit(viewer).ok());
  const Duration took = MonotonicNow() - begin;
  server_.reset();
  std::istringstream text(RealFileSystem()->Read(path).value());
  int lines = 0;
  for (std::string line; std::getline(text, line);) ++lines;
  // The first, one a second, and the rest at the end.
  EXPECT_LE(lines, 2 + took / 1s);
  EXPECT_GE(lines, 1);
}

TEST_F(RpcTest, HealthAnswersAnybodyOfTheCluster) {
  const auto check = [&](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    // An empty request asks for the server as a whole; field 1 of the answer
    // is the status, 1 serving and 2 not.
    grpc::Slice nothing;
    grpc::ByteBuffer request(&nothing, 1), response;
    std::promise<grpc::Status> done;
    grpc::GenericStub(channel).UnaryCall(
        &context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request,
        &response, [&](grpc::Status status) { done.set_value(status); });
    const grpc::Status s = done.get_future().get();
    EXPECT_TRUE(s.ok()) << s.error_message();
    std::vector<grpc::Slice> slices;
    response.Dump(&slices).ok();
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return bytes;
  };
  const auto worker = Channel(Issue(WorkerIdentity("prod", "a")));
  EXPECT_EQ(check(worker), "\x08\x01");
  server_->SetServing(false);
  EXPECT_EQ(check(worker), "\x08\x02");
}

TEST_F(RpcTest, ShutdownEndsStreams) {
  grpc::ClientContext context;
  const auto channel = User(UserRole::kViewer);
  const auto stub = v1::JobService::NewStub(channel);
  const auto reader = stub->WatchJobs(&context, v1::WatchJobsRequest());
  v1::WatchJobsResponse first;
  ASSERT_TRUE(reader->Read(&first));
  const auto before = MonotonicNow();
  server_->Shutdown(50ms);
  EXPECT_LT(MonotonicNow() - before, 20s);
  EXPECT_FALSE(reader->Read(&first));
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(RpcTest, APortIsOneDaemons) {
  RpcServerOptions options;
  options.address = server_->address();
  options.credentials = Issue(CoordinatorIdentity("prod", "second"));
  const auto second = RpcServer::Start(options, {&jobs_});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(second.status()), HasSubstr(server_->address()));
}

TEST_F(RpcTest, WithoutCertificatesOnlyOnLoopback) {
  const auto server = StartServer(std::nullopt);
  ASSERT_NE(server, nullptr);
  auto channel = MakeChannel({server->address(), std::nullopt, true});
  ASSERT_TRUE(channel.ok()) << Message(channel.status());
  const auto owner = Get(*channel);
  ASSERT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_EQ(*owner, "an unauthenticated caller");
  EXPECT_TRUE(Submit(*channel).ok());
  EXPECT_EQ(Connect(*channel).code(), StatusCode::kAborted);
  // Any other gRPC client that speaks plain text, too.
  EXPECT_TRUE(Get(grpc::CreateChannel(server->address(),
                                      grpc::InsecureChannelCredentials()))
                  .ok());

  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.0.0.1:0", "host:0"}) {
    RpcServerOptions options;
    options.address = address;
    options.insecure_loopback = true;
    EXPECT_EQ(RpcServer::Start(options, {&jobs_}).status().code(),
              StatusCode::kInvalidArgument)
        << address;
    EXPECT_EQ(MakeChannel({address, std::nullopt, true}).status().code(),
              StatusCode::kInvalidArgument)
        << address;
  }
  RpcServerOptions options;
  options.address = "127.0.0.1:0";
  EXPECT_EQ(RpcServer::Start(options, {&jobs_}).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(MakeChannel({"127.0.0.1:1", std::nullopt, false}).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(RpcTest, InProcessCallersAreNobodyInParticular) {
  const auto owner =
      Get(server_->grpc_server()->InProcessChannel(grpc::ChannelArguments()));
  ASSERT_TRUE(owner.ok()) << Message(owner.status());
  EXPECT_EQ(*owner, "an unauthenticated caller");
}

}  // namespace
}  // namespace lockstep
