// The coordinator's services over real gRPC on loopback, with real
// certificates; time and ticks are the test's.
#ifndef LOCKSTEP_TESTS_SERVICE_FIXTURE_H_
#define LOCKSTEP_TESTS_SERVICE_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/pki/ca.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/probe_wire.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/cluster.grpc.pb.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "lockstep/v1/package.grpc.pb.h"
#include "lockstep/v1/worker.grpc.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/logs/log_store.h"
#include "server/service/cluster_service.h"
#include "server/service/job_service.h"
#include "server/service/package_service.h"
#include "server/service/worker_service.h"
#include "tests/support/fake_clock.h"
#include "tests/support/memory_store.h"

namespace lockstep::server {

// What a call that should answer soon waits at most.
inline constexpr std::chrono::seconds kPatience(60);

// One end of a worker daemon's stream.
class DaemonStream {
 public:
  explicit DaemonStream(const std::shared_ptr<grpc::Channel>& channel,
                        const std::string& obeyed_epoch = "");
  ~DaemonStream();

  // False when the stream is over.
  bool Write(const v1::WorkerMessage& message);
  // The next message; nullopt: the stream is over.
  std::optional<v1::CoordinatorMessage> Read();
  // The next of this kind; others before it are dropped.
  std::optional<v1::CoordinatorMessage> Read(
      v1::CoordinatorMessage::MessageCase kind);
  // The next order for a gang. A gang that was told to be forgotten is not
  // spoken of any more.
  Assignment NextAssignment();
  // Half-closes and reads to the end.
  Status Finish();

  // True once the node is a member.
  bool Register(const std::string& node, uint64_t counter = 1,
                const std::vector<GangStatus>& gangs = {}, double cpus = 4,
                const std::vector<std::string>& work_jobs = {},
                const std::string& address = "127.0.0.1",
                int32_t probe_port = 0);
  bool Report(const GangStatus& status);
  bool Beat(uint64_t sequence, const std::vector<GangProgress>& gangs = {});
  // A chunk; returns its acknowledgement.
  LogAckInfo SendLog(const LogPiece& piece);

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>>
      stream_;
  bool registered_ = false;
  // What came while it registered.
  std::deque<v1::CoordinatorMessage> early_;
  std::optional<Status> end_;
};

class ServiceTest : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  // Of a suite that has its own: call after SetUpTestSuite. Its cluster is
  // "test".
  static void UseCa(pki::CertificateAuthority ca);
  static pki::Credentials CredentialsOf(const pki::Identity& identity);
  void SetUp() override;
  void TearDown() override;

  std::shared_ptr<grpc::Channel> As(const pki::Identity& identity);
  std::shared_ptr<grpc::Channel> User(
      const std::string& name, pki::UserRole role = pki::UserRole::kSubmitter);
  std::shared_ptr<grpc::Channel> Worker(const std::string& node);

  // ---- Calls; as user ann unless said ----
  static v1::JobSpec Spec(const std::string& name, int32_t tasks = 1);
  v1::SubmitJobRequest SubmitRequest(const v1::JobSpec& spec);
  StatusOr<v1::SubmitJobResponse> Submit(
      const v1::SubmitJobRequest& request,
      const std::shared_ptr<grpc::Channel>& channel = nullptr);
  void MustSubmit(const std::string& name, int32_t tasks = 1);
  StatusOr<v1::Job> Get(const std::string& name);
  v1::JobState State(const std::string& name);
  StatusOr<v1::Job> Cancel(
      const std::string& name, const std::string& id,
      const std::shared_ptr<grpc::Channel>& channel = nullptr);
  StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);

  // Waits until the coordinator has taken in what was sent.
  void AwaitState(const std::string& name, v1::JobState state);
  // Brings the one-task job `name` to RUNNING on the daemon's node.
  GangStatus RunOn(DaemonStream* daemon, const std::string& name,
                   bool native = false);
  // Its deciding rank ends well; the job ends.
  void End(DaemonStream* daemon, GangStatus status);

  // What SetUp starts the server with; address and credentials are its own.
  RpcServerOptions server_options_;
  // And the coordinator; ids and keys are its own.
  CoordinatorOptions coordinator_options_;
  // The site's tables, and what packages are let in.
  Site site_ = DefaultSite();
  PackageStoreOptions package_options_;
  PackageServiceOptions package_service_options_;
  WorkFilesOptions files_options_;
  // What JobService and WorkerService ask for space; set it before SetUp.
  std::function<Status()> space_;
  // What a submitter may ask for, likewise.
  int32_t max_submitter_priority_ = 0;
  FakeClock clock_;
  MemoryStore store_;
  std::string dir_;
  StreamMetrics streams_;
  // Set it before SetUp.
  ReaderLimits reader_limits_;
  std::unique_ptr<StreamReaders> readers_;
  std::unique_ptr<WatchHub> hub_;
  std::unique_ptr<LogStore> logs_;
  std::unique_ptr<SiteTables> tables_;
  std::unique_ptr<PackageStore> packages_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<WorkFiles> files_;
  std::unique_ptr<EvidenceDesk> evidence_;
  // Set both before SetUp.
  SessionDeskOptions session_options_;
  SessionPolicy session_policy_ = SessionPolicy::kOn;
  std::unique_ptr<SessionDesk> sessions_;
  std::unique_ptr<CallPools> pools_;
  std::unique_ptr<JobService> job_service_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<WorkerService> worker_service_;
  std::unique_ptr<PackageService> package_service_;
  std::unique_ptr<RpcServer> server_;
  int uids_ = 0;
  int requests_ = 0;
};

// A call's context with a deadline.
std::unique_ptr<grpc::ClientContext> Context();

template <typename Response, typename Call>
StatusOr<Response> Answer(Call call) {
  const auto context = Context();
  Response response;
  const grpc::Status status = call(context.get(), &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_TESTS_SERVICE_FIXTURE_H_
