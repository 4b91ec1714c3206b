#include "tests/service/fixture.h"

#include <cstdlib>
#include <mutex>
#include <semaphore>

#include "common/rpc/grpc_log.h"
#include "common/rpc/metadata_keys.h"

namespace lockstep::server {
namespace {

using pki::CertificateAuthority;
using pki::CoordinatorIdentity;
using pki::Credentials;
using pki::Identity;
using pki::kLeafLifetime;
using pki::LeafRequest;
using pki::UserRole;
using pki::WorkerIdentity;

constexpr char kCluster[] = "test";

// Making keys takes milliseconds: one CA for all tests. Tests ask for
// credentials from several threads at once.
std::mutex credentials_mu;
std::unique_ptr<CertificateAuthority> shared_ca;
std::map<std::string, Credentials> shared_credentials;

Credentials Issue(const Identity& identity) {
  const std::lock_guard lock(credentials_mu);
  const std::string name = FormatIdentity(identity);
  const auto known = shared_credentials.find(name);
  if (known != shared_credentials.end()) return known->second;
  const WallTime now = SystemClock().Now().wall;
  LeafRequest request;
  request.identity = identity;
  const auto leaf = shared_ca->Issue(request, now);
  EXPECT_TRUE(leaf.ok()) << Message(leaf.status());
  Credentials credentials{identity, now + kLeafLifetime,
                          shared_ca->certificate(), leaf->certificate,
                          leaf->key};
  return shared_credentials[name] = credentials;
}

}  // namespace

std::unique_ptr<grpc::ClientContext> Context() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + kPatience);
  return context;
}

// ---- DaemonStream ----------------------------------------------------------

DaemonStream::DaemonStream(const std::shared_ptr<grpc::Channel>& channel,
                           const std::string& obeyed_epoch)
    : stub_(v1::WorkerService::NewStub(channel)), stream_([&] {
        if (!obeyed_epoch.empty()) {
          context_.AddMetadata(kObeyedEpochKey, obeyed_epoch);
        }
        context_.set_deadline(std::chrono::system_clock::now() + 3 * kPatience);
        return stub_->Connect(&context_);
      }()) {}

DaemonStream::~DaemonStream() {
  context_.TryCancel();
  (void)Finish();
}

bool DaemonStream::Write(const v1::WorkerMessage& message) {
  return stream_->Write(message);
}

std::optional<v1::CoordinatorMessage> DaemonStream::Read() {
  v1::CoordinatorMessage message;
  if (registered_ && !early_.empty()) {
    message = std::move(early_.front());
    early_.pop_front();
    return message;
  }
  if (!stream_->Read(&message)) return std::nullopt;
  return message;
}

std::optional<v1::CoordinatorMessage> DaemonStream::Read(
    v1::CoordinatorMessage::MessageCase kind) {
  for (;;) {
    auto message = Read();
    if (!message || message->message_case() == kind) return message;
  }
}

Assignment DaemonStream::NextAssignment() {
  for (;;) {
    const auto message = Read(v1::CoordinatorMessage::kAssignment);
    if (!message) {
      ADD_FAILURE() << "the stream ended: " << Finish().ToString();
      return {};
    }
    const auto assignment = FromProto(message->assignment());
    EXPECT_TRUE(assignment.ok()) << Message(assignment.status());
    if (!assignment.ok()) return {};
    if (assignment->goal != Goal::kForget) return *assignment;
  }
}

Status DaemonStream::Finish() {
  if (end_) return *end_;
  stream_->WritesDone();
  while (Read()) {
  }
  end_ = FromGrpc(stream_->Finish());
  return *end_;
}

bool DaemonStream::Register(const std::string& node, uint64_t counter,
                            const std::vector<GangStatus>& gangs, double cpus,
                            const std::vector<std::string>& work_jobs,
                            const std::string& address, int32_t probe_port) {
  Registration registration;
  registration.node.name = node;
  registration.node.incarnation = {counter, 7};
  registration.node.boot_id = "boot";
  registration.node.hostname = node + ".example";
  registration.node.version = "1";
  registration.node.address = address;
  registration.probe_port = probe_port;
  registration.node.http_address = "127.0.0.1:1";
  registration.node.capacity = {cpus, int64_t{8} << 30, 0, ""};
  registration.gangs = gangs;
  registration.work_jobs = work_jobs;
  v1::WorkerMessage message;
  *message.mutable_register_() = ToProto(registration);
  if (!Write(message) || !Read(v1::CoordinatorMessage::kWelcome)) return false;
  // The welcome comes before the node is a member; a beat is answered after.
  if (!Beat(1)) return false;
  for (;;) {
    auto next = Read();
    if (!next) return false;
    if (next->has_heartbeat_ack()) return registered_ = true;
    early_.push_back(*std::move(next));
  }
}

bool DaemonStream::Report(const GangStatus& status) {
  v1::WorkerMessage message;
  *message.mutable_gang_status() = ToProto(status);
  return Write(message);
}

bool DaemonStream::Beat(uint64_t sequence,
                        const std::vector<GangProgress>& gangs) {
  v1::WorkerMessage message;
  *message.mutable_heartbeat() =
      ToProto(NodeHeartbeat{sequence, gangs, {0.5, 1 << 20, {}, {}, {}}});
  return Write(message);
}

LogAckInfo DaemonStream::SendLog(const LogPiece& piece) {
  v1::WorkerMessage message;
  *message.mutable_log_chunk() = ToProto(piece);
  EXPECT_TRUE(Write(message));
  const auto reply = Read(v1::CoordinatorMessage::kLogAck);
  if (!reply) {
    ADD_FAILURE() << "the stream ended: " << Finish().ToString();
    return {};
  }
  const auto ack = FromProto(reply->log_ack());
  EXPECT_TRUE(ack.ok()) << Message(ack.status());
  return ack.value_or(LogAckInfo{});
}

// ---- ServiceTest -----------------------------------------------------------

void ServiceTest::SetUpTestSuite() {
  RedirectGrpcLog(GrpcLog::kSilent);
  auto ca = CertificateAuthority::Create(kCluster, SystemClock().Now().wall);
  ASSERT_TRUE(ca.ok()) << Message(ca.status());
  shared_ca = std::make_unique<CertificateAuthority>(*std::move(ca));
}

void ServiceTest::UseCa(CertificateAuthority ca) {
  shared_credentials.clear();
  shared_ca = std::make_unique<CertificateAuthority>(std::move(ca));
}

Credentials ServiceTest::CredentialsOf(const Identity& identity) {
  return Issue(identity);
}

void ServiceTest::TearDownTestSuite() {
  shared_credentials.clear();
  shared_ca.reset();
}

void ServiceTest::SetUp() {
  char name[] = "/tmp/lockstep-service-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  dir_ = name;
  hub_ = std::make_unique<WatchHub>();
  logs_ = std::make_unique<LogStore>(RealFileSystem(), JoinPath(dir_, "logs"));
  CoordinatorOptions options = coordinator_options_;
  options.new_uid = [this] { return "uid" + std::to_string(++uids_); };
  options.new_key = [] { return std::string(32, 'k'); };
  options.retention.on_deleted = [this](const std::string& uid) {
    logs_->Remove(uid);
  };
  coordinator_ =
      std::make_unique<Coordinator>(options, &store_, &clock_, hub_.get());
  ASSERT_TRUE(coordinator_->Load().ok());
  tables_ = std::make_unique<SiteTables>(site_);
  package_options_.dir = JoinPath(dir_, "packages");
  auto packages =
      PackageStore::Open(RealFileSystem(), package_options_, &clock_);
  ASSERT_TRUE(packages.ok()) << Message(packages.status());
  packages_ = *std::move(packages);
  files_ = std::make_unique<WorkFiles>(files_options_);
  evidence_ = std::make_unique<EvidenceDesk>();
  sessions_ = std::make_unique<SessionDesk>(session_options_);
  pools_ = std::make_unique<CallPools>();
  readers_ = std::make_unique<StreamReaders>(reader_limits_);
  package_service_ = std::make_unique<PackageService>(
      package_service_options_, pools_.get(), packages_.get());
  job_service_ = std::make_unique<JobService>(
      pools_.get(), coordinator_->jobs(), coordinator_->queries(), hub_.get(),
      logs_.get(), tables_.get(), packages_.get(), &streams_, files_.get(),
      JobServiceOptions{max_submitter_priority_, space_, readers_.get(),
                        evidence_.get(), sessions_.get(), session_policy_});
  cluster_service_ = std::make_unique<ClusterService>(
      pools_.get(), coordinator_->nodes(), coordinator_->queries());
  WorkerServiceOptions worker_options;
  worker_options.cluster = kCluster;
  worker_options.space = space_;
  worker_options.evidence = evidence_.get();
  worker_options.sessions = sessions_.get();
  worker_service_ = std::make_unique<WorkerService>(
      worker_options, pools_.get(), coordinator_->sessions(),
      coordinator_->queries(), logs_.get(), &streams_, files_.get());
  RpcServerOptions server_options = server_options_;
  server_options.address = "127.0.0.1:0";
  server_options.pools = pools_.get();
  server_options.credentials = Issue(CoordinatorIdentity(kCluster, "main"));
  auto server = RpcServer::Start(
      server_options, {job_service_.get(), cluster_service_.get(),
                       worker_service_.get(), package_service_.get()});
  ASSERT_TRUE(server.ok()) << Message(server.status());
  server_ = *std::move(server);
}

void ServiceTest::TearDown() {
  hub_->Close();
  logs_->Close();
  coordinator_->sessions()->CloseStreams();
  // As App's members are: what waits in the pools outlives the services.
  server_.reset();
  worker_service_.reset();
  cluster_service_.reset();
  package_service_.reset();
  job_service_.reset();
  pools_.reset();
  files_.reset();
  logs_.reset();
  EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
}

std::shared_ptr<grpc::Channel> ServiceTest::As(const Identity& identity) {
  ChannelOptions options;
  options.target = server_->address();
  options.credentials = Issue(identity);
  auto channel = MakeChannel(options);
  EXPECT_TRUE(channel.ok()) << Message(channel.status());
  return *channel;
}

std::shared_ptr<grpc::Channel> ServiceTest::User(const std::string& name,
                                                 UserRole role) {
  return As(UserIdentity(kCluster, role, name));
}

std::shared_ptr<grpc::Channel> ServiceTest::Worker(const std::string& node) {
  return As(WorkerIdentity(kCluster, node));
}

v1::JobSpec ServiceTest::Spec(const std::string& name, int32_t tasks) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_kind(v1::JOB_KIND_PROGRAM);
  spec.add_argv("train");
  v1::RoleSpec* role = spec.add_roles();
  role->set_type(v1::TASK_TYPE_WORKER);
  role->set_count(tasks);
  role->mutable_resources()->set_cpus(1);
  return spec;
}

v1::SubmitJobRequest ServiceTest::SubmitRequest(const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  request.set_request_id("request-" + std::to_string(++requests_));
  *request.mutable_spec() = spec;
  return request;
}

StatusOr<v1::SubmitJobResponse> ServiceTest::Submit(
    const v1::SubmitJobRequest& request,
    const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::JobService::NewStub(channel ? channel : User("ann"));
  return Answer<v1::SubmitJobResponse>([&](auto* context, auto* response) {
    return stub->SubmitJob(context, request, response);
  });
}

void ServiceTest::MustSubmit(const std::string& name, int32_t tasks) {
  const auto answer = Submit(SubmitRequest(Spec(name, tasks)));
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
}

StatusOr<v1::Job> ServiceTest::Get(const std::string& name) {
  const auto stub = v1::JobService::NewStub(User("adam", UserRole::kAdmin));
  v1::GetJobRequest request;
  request.set_name(name);
  return Answer<v1::Job>([&](auto* context, auto* response) {
    return stub->GetJob(context, request, response);
  });
}

v1::JobState ServiceTest::State(const std::string& name) {
  const auto job = Get(name);
  EXPECT_TRUE(job.ok()) << Message(job.status());
  return job.ok() ? job->state() : v1::JOB_STATE_UNSPECIFIED;
}

StatusOr<v1::Job> ServiceTest::Cancel(
    const std::string& name, const std::string& id,
    const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::JobService::NewStub(channel ? channel : User("ann"));
  v1::CancelJobRequest request;
  request.set_name(name);
  request.set_request_id(id);
  return Answer<v1::Job>([&](auto* context, auto* response) {
    return stub->CancelJob(context, request, response);
  });
}

StatusOr<v1::ListJobsResponse> ServiceTest::List(
    const v1::ListJobsRequest& request) {
  const auto stub = v1::JobService::NewStub(User("adam", UserRole::kAdmin));
  return Answer<v1::ListJobsResponse>([&](auto* context, auto* response) {
    return stub->ListJobs(context, request, response);
  });
}

void ServiceTest::AwaitState(const std::string& name, v1::JobState state) {
  const MonoTime deadline = MonotonicNow() + kPatience;
  std::counting_semaphore<> news(0);
  const WatchHub::Watch watch(hub_.get(), name, 0, [&] { news.release(); });
  for (;;) {
    const auto job = coordinator_->queries()->GetJob(name);
    ASSERT_TRUE(job.ok()) << Message(job.status());
    if (static_cast<int>(job->job->state) == static_cast<int>(state)) return;
    ASSERT_LT(MonotonicNow(), deadline)
        << name << " is " << Name(job->job->state);
    (void)news.try_acquire_for(std::chrono::milliseconds(50));
  }
}

GangStatus ServiceTest::RunOn(DaemonStream* daemon, const std::string& name,
                              bool native) {
  Assignment assignment = daemon->NextAssignment();
  EXPECT_EQ(assignment.job, name);
  EXPECT_EQ(assignment.goal, Goal::kPrepare);
  GangStatus status;
  status.job = assignment.job;
  status.job_uid = assignment.job_uid;
  status.generation = assignment.generation;
  status.phase = GangPhase::kPrepared;
  status.master_port = 20000;
  for (const LocalTask& task : assignment.spec->tasks) {
    status.ports.push_back(20001 + static_cast<int32_t>(status.ports.size()));
    for (const RankSpec& rank : task.ranks) {
      RankStatus fresh;
      fresh.rank = rank.rank;
      fresh.local_rank = rank.local_rank;
      status.ranks.push_back(fresh);
    }
  }
  EXPECT_TRUE(daemon->Report(status));
  EXPECT_EQ(daemon->NextAssignment().goal, Goal::kLaunch);
  status.phase = GangPhase::kLaunched;
  for (RankStatus& rank : status.ranks) {
    rank.state = native ? RankState::kJoined : RankState::kStarted;
    rank.pid = 100;
  }
  EXPECT_TRUE(daemon->Report(status));
  EXPECT_EQ(daemon->NextAssignment().goal, Goal::kGo);
  AwaitState(name, v1::JOB_STATE_RUNNING);
  return status;
}

void ServiceTest::End(DaemonStream* daemon, GangStatus status) {
  for (RankStatus& rank : status.ranks) {
    rank.state = RankState::kExited;
    rank.exit.emplace();
    rank.exit->end_time = clock_.Now().wall;
  }
  status.phase = GangPhase::kStopped;
  EXPECT_TRUE(daemon->Report(status));
  AwaitState(status.job, v1::JOB_STATE_SUCCEEDED);
}

}  // namespace lockstep::server
