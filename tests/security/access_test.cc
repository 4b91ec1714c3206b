// Every method of every service, tried by everybody who might.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "common/base/file.h"
#include "common/base/mutex.h"
#include "tests/security/certificates.h"
#include "tests/security/random_message.h"
#include "tests/security/raw_call.h"
#include "tests/service/fixture.h"

namespace lockstep {
namespace {

using pki::CertificateAuthority;
using pki::CoordinatorIdentity;
using pki::KeyAndCertificate;
using pki::LeafRequest;
using pki::UserRole;
using server::DaemonStream;
using server::kPatience;
using server::ServiceTest;

using std::chrono_literals::operator""h;
using testing::HasSubstr;
using testing::Not;

// Who may call a method, as it is meant to be: what the .proto files say is
// compared with this, so that a new method, or a new role of an old one, is
// thought about twice.
enum class For { kViewers, kSubmitters, kAdmins, kWorkers };

const std::map<std::string, For>& Rows() {
  static const auto& rows = *new std::map<std::string, For>{
      {"/lockstep.v1.JobService/SubmitJob", For::kSubmitters},
      {"/lockstep.v1.JobService/UpdateJob", For::kSubmitters},
      {"/lockstep.v1.JobService/GetJob", For::kViewers},
      {"/lockstep.v1.JobService/ListJobs", For::kViewers},
      {"/lockstep.v1.JobService/WatchJobs", For::kViewers},
      {"/lockstep.v1.JobService/CancelJob", For::kSubmitters},
      {"/lockstep.v1.JobService/DeleteJob", For::kSubmitters},
      {"/lockstep.v1.JobService/StreamLogs", For::kViewers},
      {"/lockstep.v1.JobService/RequestCheckpoint", For::kSubmitters},
      {"/lockstep.v1.JobService/RestoreJob", For::kSubmitters},
      {"/lockstep.v1.JobService/ResizeJob", For::kSubmitters},
      {"/lockstep.v1.JobService/ListFiles", For::kSubmitters},
      {"/lockstep.v1.JobService/ReadFile", For::kSubmitters},
      {"/lockstep.v1.JobService/CollectEvidence", For::kSubmitters},
      {"/lockstep.v1.JobService/OpenSession", For::kSubmitters},
      {"/lockstep.v1.ClusterService/ListNodes", For::kViewers},
      {"/lockstep.v1.ClusterService/GetNode", For::kViewers},
      {"/lockstep.v1.ClusterService/DrainNode", For::kAdmins},
      {"/lockstep.v1.ClusterService/UndrainNode", For::kAdmins},
      {"/lockstep.v1.ClusterService/ApproveNode", For::kAdmins},
      {"/lockstep.v1.ClusterService/CheckNode", For::kAdmins},
      {"/lockstep.v1.ClusterService/ForgetNode", For::kAdmins},
      {"/lockstep.v1.PackageService/UploadPackage", For::kSubmitters},
      {"/lockstep.v1.PackageService/FetchPackage", For::kWorkers},
      {"/lockstep.v1.WorkerService/Connect", For::kWorkers},
      {"/lockstep.v1.WorkerService/ServeSession", For::kWorkers},
  };
  return rows;
}

// What a caller is to the coordinator, with the answer to a call that it may
// not make.
struct Caller {
  const char* name;
  std::shared_ptr<grpc::Channel> channel;
  // The rows it may call; empty: none.
  std::set<For> may;
  StatusCode refusal;
};

class CountingObserver final : public CallObserver {
 public:
  void OnStarted(std::string_view method) override {
    MutexLock lock(&mu_);
    ++started_[std::string(method)];
  }
  void OnHandled(std::string_view method, StatusCode code, Duration) override {
    MutexLock lock(&mu_);
    ++handled_[{std::string(method), code}];
  }
  int Handled(const std::string& method, StatusCode code) {
    MutexLock lock(&mu_);
    return handled_[{method, code}];
  }

 private:
  Mutex mu_;
  std::map<std::string, int> started_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<std::string, StatusCode>, int> handled_
      ABSL_GUARDED_BY(mu_);
};

class MemorySink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // Whether a line holds all of `parts`.
  bool Holds(const std::vector<std::string>& parts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(lines_.begin(), lines_.end(), [&](const auto& line) {
      return std::all_of(parts.begin(), parts.end(), [&](const auto& part) {
        return line.find(part) != std::string::npos;
      });
    });
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_.emplace_back(message.payload.data(), message.payload.size());
  }
  void flush_() override {}

  std::vector<std::string> lines_;
};

// What is logged while it lives. Make it while nothing logs.
class LogCapture {
 public:
  LogCapture()
      : before_(spdlog::default_logger()),
        sink_(std::make_shared<MemorySink>()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("captured", sink_));
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  // A call is audited after its caller has the answer.
  testing::AssertionResult Await(const std::vector<std::string>& parts) {
    const MonoTime deadline = MonotonicNow() + kPatience;
    while (!sink_->Holds(parts)) {
      if (MonotonicNow() > deadline) {
        return testing::AssertionFailure() << "no such line: " << parts[0];
      }
      std::this_thread::yield();
    }
    return testing::AssertionSuccess();
  }

 private:
  const std::shared_ptr<spdlog::logger> before_;
  const std::shared_ptr<MemorySink> sink_;
};

class AccessTest : public ServiceTest {
 protected:
  static void SetUpTestSuite() {
    ServiceTest::SetUpTestSuite();
    char name[] = "/tmp/lockstep-access-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    ca_dir() = name;
    auto ca = CertificateAuthority::CreateIn(RealFileSystem(), ca_dir() + "/ca",
                                             "test", Now());
    ASSERT_TRUE(ca.ok()) << Message(ca.status());
    ca_pem() = ca->certificate();
    UseCa(*std::move(ca));
  }
  static void TearDownTestSuite() {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(ca_dir()).ok());
    ServiceTest::TearDownTestSuite();
  }
  void SetUp() override {
    server_options_.observer = &observer_;
    ServiceTest::SetUp();
  }

  static std::string& ca_dir() {
    static auto& dir = *new std::string();
    return dir;
  }
  static std::string& ca_pem() {
    static auto& pem = *new std::string();
    return pem;
  }
  static WallTime Now() { return SystemClock().Now().wall; }
  std::shared_ptr<grpc::Channel> Raw(const std::vector<std::string>& uris,
                                     Duration from = -1h, Duration to = 1h) {
    const KeyAndCertificate leaf =
        IssueRaw(ca_dir() + "/ca", {uris, Now() + from, Now() + to, false});
    return RawChannel(server_->address(), ca_pem(), &leaf);
  }
  std::vector<Caller> Callers();

  CountingObserver observer_;
};

std::vector<Caller> AccessTest::Callers() {
  const std::set<For> nothing;
  const auto unavailable = StatusCode::kUnavailable;
  const auto unauthenticated = StatusCode::kUnauthenticated;
  const auto denied = StatusCode::kPermissionDenied;
  const std::string admin = "spiffe://test/user/admin/ann";
  auto other = CertificateAuthority::Create("test", Now());
  LeafRequest request;
  request.identity = UserIdentity("test", UserRole::kAdmin, "eve");
  const auto eve = other->Issue(request, Now());
  return {
      // Not past the TLS handshake.
      {"plain text",
       grpc::CreateChannel(server_->address(),
                           grpc::InsecureChannelCredentials()),
       nothing, unavailable},
      {"no certificate", RawChannel(server_->address(), ca_pem(), nullptr),
       nothing, unavailable},
      {"of another CA", RawChannel(server_->address(), ca_pem(), &*eve),
       nothing, unavailable},
      {"trusts another CA",
       RawChannel(server_->address(), other->certificate(), &*eve), nothing,
       unavailable},
      {"expired", Raw({admin}, -2h, -1h), nothing, unavailable},
      {"not yet valid", Raw({admin}, 1h, 2h), nothing, unavailable},
      // A certificate of ours that names nobody.
      {"no name", Raw({}), nothing, unauthenticated},
      {"two names", Raw({admin, "spiffe://test/worker/node-a"}), nothing,
       unauthenticated},
      {"user without a role", Raw({"spiffe://test/user/ann"}), nothing,
       unauthenticated},
      {"user with an unknown role", Raw({"spiffe://test/user/root/ann"}),
       nothing, unauthenticated},
      {"user with an empty role", Raw({"spiffe://test/user//ann"}), nothing,
       unauthenticated},
      {"unknown kind", Raw({"spiffe://test/rank/0"}), nothing, unauthenticated},
      {"another scheme", Raw({"https://test/user/admin/ann"}), nothing,
       unauthenticated},
      {"of another cluster", Raw({"spiffe://prod/user/admin/ann"}), nothing,
       unauthenticated},
      // Somebody, but not for everything.
      {"viewer", User("vera", UserRole::kViewer), {For::kViewers}, denied},
      {"submitter", User("ann"), {For::kViewers, For::kSubmitters}, denied},
      {"admin",
       User("adam", UserRole::kAdmin),
       {For::kViewers, For::kSubmitters, For::kAdmins},
       denied},
      {"worker", Worker("node-a"), {For::kWorkers}, denied},
      {"coordinator", As(CoordinatorIdentity("test", "main")), nothing, denied},
  };
}

TEST_F(AccessTest, EveryMethodHasARowAndEveryRowAMethod) {
  std::set<std::string> methods;
  for (const auto* method : AllMethods()) {
    methods.insert(PathOf(*method));
    EXPECT_TRUE(Rows().contains(PathOf(*method)))
        << PathOf(*method) << " is new: say in Rows() who may call it";
  }
  for (const auto& [path, who] : Rows()) {
    EXPECT_TRUE(methods.contains(path)) << path << " is no more";
  }
}

TEST_F(AccessTest, EachMethodByEachCaller) {
  const int64_t commits = store_.commits();
  for (const Caller& caller : Callers()) {
    for (const auto* method : AllMethods()) {
      const std::string path = PathOf(*method);
      SCOPED_TRACE(fmt::format("{} by {}", path, caller.name));
      const auto row = Rows().find(path);
      if (row == Rows().end()) continue;  // The test above says so.
      // Of an empty request nothing can come.
      const RawAnswer answer = Call(caller.channel, path, {""});
      if (caller.may.contains(row->second)) {
        EXPECT_TRUE(answer.Admitted()) << answer.status;
        EXPECT_NE(answer.status.code(), StatusCode::kUnimplemented);
        EXPECT_NE(answer.status.code(), StatusCode::kDeadlineExceeded);
        continue;
      }
      EXPECT_EQ(answer.responses, 0);
      EXPECT_EQ(answer.status.code(), caller.refusal) << answer.status;
    }
    // What is not there is nobody's.
    const RawAnswer answer =
        Call(caller.channel, "/lockstep.v1.JobService/Shutdown", {""});
    EXPECT_EQ(answer.responses, 0);
    EXPECT_TRUE(answer.status.code() == StatusCode::kUnimplemented ||
                answer.status.code() == caller.refusal)
        << caller.name << ": " << answer.status;
  }
  EXPECT_EQ(store_.commits(), commits) << "nothing was changed";
}

// Who may not act on a job or node is told so, and not whether it is there.
TEST_F(AccessTest, ARefusalSaysNothingOfWhatIsThere) {
  MustSubmit("secret");
  for (const Caller& caller : Callers()) {
    for (const auto* method : AllMethods()) {
      const std::string path = PathOf(*method);
      const auto row = Rows().find(path);
      const auto* name = method->input_type()->FindFieldByName("name");
      if (row == Rows().end() || name == nullptr ||
          caller.may.contains(row->second)) {
        continue;
      }
      std::vector<std::string> answers;
      for (const char* target : {"secret", "absent"}) {
        const auto request = NewMessage(*method->input_type());
        request->GetReflection()->SetString(request.get(), name, target);
        if (const auto* id =
                method->input_type()->FindFieldByName("request_id")) {
          request->GetReflection()->SetString(request.get(), id, "r1");
        }
        const RawAnswer answer =
            Call(caller.channel, path, {request->SerializeAsString()});
        EXPECT_EQ(answer.status.code(), caller.refusal);
        EXPECT_THAT(Message(answer.status), Not(HasSubstr(target)));
        answers.push_back(caller.refusal == StatusCode::kUnavailable
                              ? ""
                              : Message(answer.status));
      }
      EXPECT_EQ(answers[0], answers[1]) << path << " by " << caller.name;
    }
  }
  EXPECT_EQ(State("secret"), v1::JOB_STATE_QUEUED);
}

TEST_F(AccessTest, ASubmitterChangesOnlyItsOwnJobs) {
  MustSubmit("anns");  // By user ann.
  const struct {
    const char* name;
    std::shared_ptr<grpc::Channel> channel;
  } strangers[] = {
      {"another submitter", User("bob")},
      // The same name in another role is the same person; in another kind of
      // certificate it is not.
      {"a worker of the same name", Worker("ann")},
  };
  const int64_t commits = store_.commits();
  for (const auto& stranger : strangers) {
    for (const char* method :
         {"CancelJob", "DeleteJob", "RequestCheckpoint", "UpdateJob"}) {
      v1::CancelJobRequest request;  // The first fields of all four.
      request.set_name("anns");
      request.set_request_id("r1");
      const RawAnswer answer = Call(
          stranger.channel, std::string("/lockstep.v1.JobService/") + method,
          {request.SerializeAsString()});
      EXPECT_EQ(answer.status.code(), StatusCode::kPermissionDenied)
          << method << " by " << stranger.name << ": " << answer.status;
    }
  }
  EXPECT_EQ(store_.commits(), commits);
  EXPECT_EQ(State("anns"), v1::JOB_STATE_QUEUED);
  // An admin may; and the owner with any role that submits.
  EXPECT_TRUE(Cancel("anns", "r2", User("adam", UserRole::kAdmin)).ok());
}

// What a job says is its owner's: no method tells others, whatever it answers.
TEST_F(AccessTest, NoMethodTellsOthersWhatAJobSays) {
  const std::string secret = "s3cret-of-ann";
  v1::JobSpec spec = Spec("anns");
  spec.add_argv(secret);
  (*spec.mutable_environment())["TOKEN"] = secret;
  (*spec.mutable_labels())["team"] = secret;
  ASSERT_TRUE(Submit(SubmitRequest(spec), User("ann")).ok());
  const auto told = [&](const std::shared_ptr<grpc::Channel>& channel,
                        const std::string& target) {
    std::set<std::string> methods;
    for (const auto* method : AllMethods()) {
      // What changes jobs is refused elsewhere, and would end this one.
      if (method->name() == "CancelJob" || method->name() == "DeleteJob") {
        continue;
      }
      const auto request = NewMessage(*method->input_type());
      const auto* name = method->input_type()->FindFieldByName("name");
      if (name != nullptr) {
        request->GetReflection()->SetString(request.get(), name, target);
      }
      if (const auto* id =
              method->input_type()->FindFieldByName("request_id")) {
        request->GetReflection()->SetString(request.get(), id, "r1");
      }
      const RawAnswer answer =
          Call(channel, PathOf(*method), {request->SerializeAsString()});
      if ((answer.bytes + Message(answer.status)).find(secret) !=
          std::string::npos) {
        methods.insert(method->name());
      }
    }
    return methods;
  };
  for (const auto& stranger :
       {User("bob"), User("vera", UserRole::kViewer), Worker("ann"),
        As(CoordinatorIdentity("test", "ann"))}) {
    EXPECT_THAT(told(stranger, "anns"), testing::IsEmpty());
    EXPECT_THAT(told(stranger, ""), testing::IsEmpty());
  }
  EXPECT_TRUE(told(User("ann"), "anns").contains("GetJob"));
  EXPECT_TRUE(told(User("adam", UserRole::kAdmin), "").contains("WatchJobs"));
}

// The answer to a request id is the first caller's alone.
TEST_F(AccessTest, ARequestIdIsItsOwners) {
  v1::SubmitJobRequest request = SubmitRequest(Spec("mine"));
  ASSERT_TRUE(Submit(request, User("ann")).ok());
  ASSERT_TRUE(Submit(request, User("ann")).ok()) << "a repeat";
  const auto stolen = Submit(request, User("bob"));
  EXPECT_EQ(stolen.status().code(), StatusCode::kAlreadyExists)
      << stolen.status();
}

TEST_F(AccessTest, AWorkerSpeaksForItsOwnNodeOnly) {
  DaemonStream a(Worker("node-a"));
  ASSERT_TRUE(a.Register("node-a"));
  const int64_t commits = store_.commits();
  DaemonStream b(Worker("node-b"));
  EXPECT_FALSE(b.Register("node-a", 2));
  const Status refused = b.Finish();
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied) << refused;
  EXPECT_EQ(ReasonOf(refused), "OTHER_NODE");
  // node-a is still node-a's.
  ASSERT_TRUE(a.Beat(7));
  EXPECT_TRUE(a.Read(v1::CoordinatorMessage::kHeartbeatAck).has_value());
  EXPECT_EQ(store_.commits(), commits);
  // Nor may anything come before it says who it is.
  DaemonStream early(Worker("node-b"));
  EXPECT_TRUE(early.Beat(1));
  EXPECT_EQ(early.Finish().code(), StatusCode::kInvalidArgument);
}

// Even who knows everything about a job of another node cannot speak for it.
TEST_F(AccessTest, AWorkerCannotReportRanksOfAnotherNode) {
  DaemonStream a(Worker("node-a"));
  ASSERT_TRUE(a.Register("node-a"));
  MustSubmit("job");
  GangStatus real = RunOn(&a, "job");
  DaemonStream b(Worker("node-b"));
  ASSERT_TRUE(b.Register("node-b"));

  GangStatus forged = real;
  forged.ranks[0].state = RankState::kExited;
  forged.ranks[0].exit.emplace();
  forged.ranks[0].exit->end_time = clock_.Now().wall;
  forged.phase = GangPhase::kStopped;
  forged.checkpoint = Checkpoint{};
  forged.checkpoint->step = 999;
  forged.checkpoint->generation = real.generation;
  forged.checkpoint->path = "/forged";
  EXPECT_TRUE(b.Report(forged));
  forged.ranks[0] = real.ranks[0];
  forged.phase = GangPhase::kLaunched;
  EXPECT_TRUE(b.Report(forged));
  GangProgress progress{real.job, real.generation, {real.ranks[0]}};
  progress.ranks[0].progress.step = 12345;
  progress.ranks[0].progress.committed_step = 12344;
  EXPECT_TRUE(b.Beat(2, {progress}));
  EXPECT_TRUE(b.Read(v1::CoordinatorMessage::kHeartbeatAck).has_value());

  const auto job = coordinator_->queries()->GetJob("job");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->job->state, JobState::kRunning);
  EXPECT_FALSE(job->job->last_checkpoint.has_value());
  EXPECT_FALSE(job->progress.has_value() && job->progress->chief.step == 12345)
      << "progress of a rank on another node was believed";
  for (const auto& [rank, status] : job->live) {
    EXPECT_NE(status.progress.step, 12345);
  }
  // Its rendezvous is closed to strangers.
  v1::WorkerMessage put;
  *put.mutable_rendezvous_put() =
      ToRendezvousPut({"job", real.generation, "key", "forged"});
  EXPECT_TRUE(b.Write(put));
  EXPECT_EQ(b.Finish().code(), StatusCode::kPermissionDenied);
}

TEST_F(AccessTest, RefusalsAndChangesAreAuditedAndCounted) {
  const std::string submit = "/lockstep.v1.JobService/SubmitJob";
  const std::string drain = "/lockstep.v1.ClusterService/DrainNode";
  LogCapture log;
  MustSubmit("anns");
  EXPECT_TRUE(log.Await({"audit: user ann (submitter)",
                         "ipv4:127.0.0.1:", "SubmitJob", "\"anns\"", "OK"}));
  EXPECT_FALSE(
      Submit(SubmitRequest(Spec("hers")), User("vera", UserRole::kViewer))
          .ok());
  EXPECT_TRUE(log.Await(
      {"audit: refused user vera (viewer)", "SubmitJob", "PERMISSION_DENIED"}));
  EXPECT_FALSE(Cancel("anns", "r1", User("bob")).ok());
  EXPECT_TRUE(log.Await({"audit: refused user bob (submitter)",
                         "ipv4:127.0.0.1:", "CancelJob", "\"anns\"",
                         "PERMISSION_DENIED"}));
  EXPECT_EQ(
      Call(Raw({"spiffe://test/user/root/ann"}), submit, {""}).status.code(),
      StatusCode::kUnauthenticated);
  EXPECT_TRUE(log.Await({"audit: refused an unknown caller", "SubmitJob",
                         "UNAUTHENTICATED", "spiffe://test/user/root/ann"}));
  v1::DrainNodeRequest request;
  request.set_name("node-x");
  request.set_request_id("r1");
  EXPECT_EQ(
      Call(User("adam", UserRole::kAdmin), drain, {request.SerializeAsString()})
          .status.code(),
      StatusCode::kNotFound);
  EXPECT_TRUE(log.Await({"audit: user adam (admin)", "ipv4:127.0.0.1:",
                         "DrainNode", "\"node-x\"", "NOT_FOUND"}));
  DaemonStream b(Worker("node-b"));
  EXPECT_FALSE(b.Register("node-a"));
  EXPECT_TRUE(log.Await({"audit: refused worker node-b", "ipv4:127.0.0.1:",
                         "Connect", "may not register node node-a"}));
  EXPECT_EQ(observer_.Handled(submit, StatusCode::kPermissionDenied), 1);
  EXPECT_EQ(observer_.Handled(submit, StatusCode::kUnauthenticated), 1);
  server_->Shutdown();
}

}  // namespace
}  // namespace lockstep
