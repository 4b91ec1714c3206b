// JobService of proto/lockstep/v1/job.proto: convert, call, convert.
#ifndef LOCKSTEP_SERVER_SERVICE_JOB_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_JOB_SERVICE_H_

#include "common/pki/identity.h"
#include "lockstep/v1/job.grpc.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/logs/log_store.h"
#include "server/packages/package_store.h"
#include "server/service/stream_metrics.h"
#include "server/service/work_files.h"
#include "server/site/site_tables.h"

namespace lockstep {

struct JobServiceOptions {
  // The highest priority that a submitter may ask for; admins may ask for any.
  int32_t max_submitter_priority = 0;
};

class JobService final : public v1::JobService::Service {
 public:
  // All outlive it; `streams` and `files` may be null.
  JobService(Coordinator* coordinator, WatchHub* hub, LogStore* logs,
             const SiteTables* site, PackageStore* packages,
             StreamMetrics* streams = nullptr, WorkFiles* files = nullptr,
             JobServiceOptions options = {})
      : options_(options),
        coordinator_(coordinator),
        hub_(hub),
        logs_(logs),
        site_(site),
        packages_(packages),
        streams_(streams),
        files_(files) {}

  grpc::Status SubmitJob(grpc::ServerContext* context,
                         const v1::SubmitJobRequest* request,
                         v1::SubmitJobResponse* response) override;
  grpc::Status UpdateJob(grpc::ServerContext* context,
                         const v1::UpdateJobRequest* request,
                         v1::Job* response) override;
  grpc::Status GetJob(grpc::ServerContext* context,
                      const v1::GetJobRequest* request,
                      v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* context,
                        const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status WatchJobs(
      grpc::ServerContext* context, const v1::WatchJobsRequest* request,
      grpc::ServerWriter<v1::WatchJobsResponse>* writer) override;
  grpc::Status CancelJob(grpc::ServerContext* context,
                         const v1::CancelJobRequest* request,
                         v1::Job* response) override;
  grpc::Status DeleteJob(grpc::ServerContext* context,
                         const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse* response) override;
  grpc::Status StreamLogs(
      grpc::ServerContext* context, const v1::StreamLogsRequest* request,
      grpc::ServerWriter<v1::StreamLogsResponse>* writer) override;
  grpc::Status RequestCheckpoint(
      grpc::ServerContext* context, const v1::RequestCheckpointRequest* request,
      v1::RequestCheckpointResponse* response) override;
  grpc::Status RestoreJob(grpc::ServerContext* context,
                          const v1::RestoreJobRequest* request,
                          v1::Job* response) override;
  // job_files.cc
  grpc::Status ListFiles(grpc::ServerContext* context,
                         const v1::ListFilesRequest* request,
                         v1::ListFilesResponse* response) override;
  grpc::Status ReadFile(
      grpc::ServerContext* context, const v1::ReadFileRequest* request,
      grpc::ServerWriter<v1::ReadFileResponse>* writer) override;

 private:
  // With validate_only.
  Status Plan(const JobSpec& spec, v1::SubmitJobResponse* response);
  // FailedPrecondition: one is not stored for `user`. They are kept for a
  // while.
  Status CheckPackages(const JobSpec& spec, const PackageUser& user);
  // Whether nothing can happen to the job `name` after `version`.
  bool IsOver(const std::string& name, int64_t version);
  // job_files.cc
  struct FileTarget {
    NodeName node;
    FileQuery query;
  };
  StatusOr<FileTarget> FindFile(const grpc::ServerContext& context,
                                const std::string& name, int32_t rank,
                                const std::string& path);
  Status SendFile(const FileTarget& target, grpc::ServerContext* context,
                  grpc::ServerWriter<v1::ReadFileResponse>* writer,
                  Turns::Turn* turn);

  // PermissionDenied: `priority` is above what the caller may ask for.
  Status CheckPriority(const Identity& caller, int32_t priority) const;

  const JobServiceOptions options_;
  Coordinator* const coordinator_;
  WatchHub* const hub_;
  LogStore* const logs_;
  const SiteTables* const site_;
  PackageStore* const packages_;
  StreamMetrics* const streams_;
  WorkFiles* const files_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_JOB_SERVICE_H_
