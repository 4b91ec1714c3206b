// JobService of proto/lockstep/v1/job.proto. Converts messages and calls the
// coordinator.
#ifndef LOCKSTEP_SERVER_SERVICE_JOB_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_JOB_SERVICE_H_

#include <functional>

#include "common/pki/identity.h"
#include "common/rpc/call_pools.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/job_commands.h"
#include "server/coordinator/watch_hub.h"
#include "server/logs/log_store.h"
#include "server/metrics/stream_metrics.h"
#include "server/packages/package_store.h"
#include "server/query/visibility.h"
#include "server/service/evidence_desk.h"
#include "server/service/session_desk.h"
#include "server/service/unary.h"
#include "server/service/work_files.h"
#include "server/site/site_tables.h"
#include "server/stream/stream_readers.h"

namespace lockstep::server {

// The users that may open sessions in ranks: those who may cancel the job,
// admins only, or none.
enum class SessionPolicy { kOn, kAdmins, kOff };

struct JobServiceOptions {
  // The highest priority for submitters. Admins may use any.
  int32_t max_submitter_priority = 0;
  // Returns ResourceExhausted to reject new jobs. Empty for no check.
  std::function<Status()> space = nullptr;
  // For WatchJobs and StreamLogs. Outlives the service's calls. Null for no
  // limits on readers.
  StreamReaders* readers = nullptr;
  // Outlives the call pools. Null: no evidence is collected.
  EvidenceDesk* evidence = nullptr;
  // Outlives the call pools. Null: there are no sessions.
  SessionDesk* sessions = nullptr;
  SessionPolicy session_policy = SessionPolicy::kOn;
};

// A part of a task's working directory, and its node.
struct FileTarget {
  NodeName node;
  FileQuery query;
};

class JobService final : public v1::JobService::CallbackService {
 public:
  // All outlive this object, and all but `pools` outlive `pools`; `streams` and
  // `files` may be null.
  JobService(CallPools* pools, JobCommands* commands,
             const ClusterQueries* queries, WatchHub* hub, LogStore* logs,
             const SiteTables* site, PackageStore* packages,
             StreamMetrics* streams = nullptr, WorkFiles* files = nullptr,
             JobServiceOptions options = {})
      : options_(options),
        pools_(pools),
        commands_(commands),
        queries_(queries),
        hub_(hub),
        logs_(logs),
        site_(site),
        packages_(packages),
        streams_(streams),
        files_(files),
        evidence_(options_.evidence) {}

  // gRPC calls these on a thread of the caller's pool.
  grpc::ServerUnaryReactor* SubmitJob(
      grpc::CallbackServerContext* context, const v1::SubmitJobRequest* request,
      v1::SubmitJobResponse* response) override {
    return Answer(context, DoSubmitJob(context, request, response));
  }
  grpc::ServerUnaryReactor* UpdateJob(grpc::CallbackServerContext* context,
                                      const v1::UpdateJobRequest* request,
                                      v1::Job* response) override {
    return Answer(context, DoUpdateJob(context, request, response));
  }
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request,
                                   v1::Job* response) override {
    return Answer(context, DoGetJob(context, request, response));
  }
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return Answer(context, DoListJobs(context, request, response));
  }
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override {
    return Answer(context, DoCancelJob(context, request, response));
  }
  grpc::ServerUnaryReactor* DeleteJob(
      grpc::CallbackServerContext* context, const v1::DeleteJobRequest* request,
      v1::DeleteJobResponse* response) override {
    return Answer(context, DoDeleteJob(context, request, response));
  }
  grpc::ServerUnaryReactor* RequestCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::RequestCheckpointRequest* request,
      v1::RequestCheckpointResponse* response) override {
    return Answer(context, DoRequestCheckpoint(context, request, response));
  }
  grpc::ServerUnaryReactor* RestoreJob(grpc::CallbackServerContext* context,
                                       const v1::RestoreJobRequest* request,
                                       v1::Job* response) override;
  grpc::ServerUnaryReactor* ResizeJob(grpc::CallbackServerContext* context,
                                      const v1::ResizeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(
      grpc::CallbackServerContext* context,
      const v1::WatchJobsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      grpc::CallbackServerContext* context,
      const v1::StreamLogsRequest* request) override;
  // Defined in job_files.cc.
  grpc::ServerUnaryReactor* ListFiles(grpc::CallbackServerContext* context,
                                      const v1::ListFilesRequest* request,
                                      v1::ListFilesResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadFileResponse>* ReadFile(
      grpc::CallbackServerContext* context,
      const v1::ReadFileRequest* request) override;
  // Defined in job_evidence.cc.
  grpc::ServerUnaryReactor* CollectEvidence(
      grpc::CallbackServerContext* context,
      const v1::CollectEvidenceRequest* request,
      v1::JobEvidence* response) override;
  // Defined in job_sessions.cc.
  grpc::ServerBidiReactor<v1::SessionInput, v1::SessionOutput>* OpenSession(
      grpc::CallbackServerContext* context) override;

 private:
  grpc::Status DoSubmitJob(grpc::ServerContextBase* context,
                           const v1::SubmitJobRequest* request,
                           v1::SubmitJobResponse* response);
  grpc::Status DoUpdateJob(grpc::ServerContextBase* context,
                           const v1::UpdateJobRequest* request,
                           v1::Job* response);
  grpc::Status DoGetJob(grpc::ServerContextBase* context,
                        const v1::GetJobRequest* request, v1::Job* response);
  grpc::Status DoListJobs(grpc::ServerContextBase* context,
                          const v1::ListJobsRequest* request,
                          v1::ListJobsResponse* response);
  grpc::Status DoCancelJob(grpc::ServerContextBase* context,
                           const v1::CancelJobRequest* request,
                           v1::Job* response);
  grpc::Status DoDeleteJob(grpc::ServerContextBase* context,
                           const v1::DeleteJobRequest* request,
                           v1::DeleteJobResponse* response);
  grpc::Status DoRequestCheckpoint(grpc::ServerContextBase* context,
                                   const v1::RequestCheckpointRequest* request,
                                   v1::RequestCheckpointResponse* response);

  // FailedPrecondition if a package is not stored for `user`. The packages are
  // then kept for a while.
  Status CheckPackages(const JobSpec& spec, const PackageUser& user);
  // Returns the caller as a reader for visibility checks.
  JobReader ReaderFor(const grpc::ServerContextBase& context) const;
  // Defined in job_files.cc.
  StatusOr<FileTarget> FindFile(const grpc::ServerContextBase& context,
                                const std::string& name, int32_t rank,
                                const std::string& path);

  const JobServiceOptions options_;
  CallPools* const pools_;
  JobCommands* const commands_;
  const ClusterQueries* const queries_;
  WatchHub* const hub_;
  LogStore* const logs_;
  const SiteTables* const site_;
  PackageStore* const packages_;
  StreamMetrics* const streams_;
  WorkFiles* const files_;
  EvidenceDesk* const evidence_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_JOB_SERVICE_H_
