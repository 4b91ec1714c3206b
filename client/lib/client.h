// lockstep's API for C++ programs, without gRPC: submit jobs, watch them,
// read their logs, look at nodes.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto client, Client::Connect(options));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto answer, client->SubmitJob(spec));
//   LOCKSTEP_ASSIGN_OR_RETURN(v1::Job job,
//                             client->WaitJob(spec.name(), {}, nullptr));
//
// Messages are those of proto/lockstep/v1, where each field and each method's
// errors are described. Errors are Status; ReasonOf(status) is the reason code
// that the coordinator gave. Each call below may also give:
//   Unavailable        nobody answers at that address
//   DeadlineExceeded   it took longer than ClientOptions::timeout
//   Unauthenticated, PermissionDenied   who we are, what we may do
// A call that changes something carries a request id of its own and is safely
// repeated while the coordinator is away for a moment.
#ifndef LOCKSTEP_CLIENT_LIB_CLIENT_H_
#define LOCKSTEP_CLIENT_LIB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/lib/stop_token.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/cluster.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/task.pb.h"
#include "lockstep/v1/training.pb.h"

namespace lockstep {

struct ClientOptions {
  // HOST:PORT of the coordinator.
  std::string address;
  // PEM files: the cluster's CA, our certificate, its key.
  std::string ca;
  std::string certificate;
  std::string key;
  // No TLS and no files; only where `address` is loopback.
  bool insecure_loopback = false;
  // Of every call but the streams.
  Duration timeout = std::chrono::seconds(30);
};

struct SubmitOptions {
  // Checks and plans, changes nothing.
  bool validate_only = false;
  // Empty: a new one. The same id and spec again give the first answer.
  std::string request_id;
};

struct UpdateJobOptions {
  bool clear_labels = false;
  std::vector<std::string> remove_labels;
  // Set after the others were removed.
  std::map<std::string, std::string> labels;
  // Absent: it stays as it is.
  std::optional<int32_t> priority = std::nullopt;
  // Only if the job is still at this version; 0: whatever it is.
  int64_t resource_version = 0;
};

// Fills `buffer` with up to `size` bytes from `offset` of a package; returns
// how many, 0 at its end. Called on the thread of the call.
using PackageReader =
    std::function<StatusOr<size_t>(uint64_t offset, char* buffer, size_t size)>;

struct UploadOptions {
  // Told how many bytes are on their way, about every 1 MiB.
  std::function<void(uint64_t)> on_progress;
  // Without a byte moving for so long, the coordinator counts as away.
  Duration stall = std::chrono::seconds(60);
  // How long it may be away before the upload gives up; at once where it never
  // was there.
  Duration patience = std::chrono::minutes(2);
};

struct ListJobsOptions {
  // Empty: all.
  std::vector<v1::JobState> states;
  // As ListJobsRequest.filter; empty: all.
  std::string filter;
  // At most so many, newest first; 0: all.
  int64_t limit = 0;
  // How many each call asks for; 0: as many as may be.
  int32_t page_size = 0;
};

struct WatchOptions {
  // Empty: all jobs.
  std::string name;
  // 0: a snapshot first.
  int64_t resource_version = 0;
  // How long the coordinator may be away before the watch gives up.
  Duration patience = std::chrono::minutes(5);
  // Told once each time the stream breaks, before it is tried again.
  std::function<void(const Status&)> on_interrupted;
};

// False ends the stream with OK. Called on the thread of the call.
using WatchCallback = std::function<bool(const v1::WatchJobsResponse&)>;
using LogCallback = std::function<bool(const v1::LogLine&)>;
// Bytes of a file, in order; `size` is that of the whole. An error ends it.
using FileSink = std::function<Status(int64_t size, std::string_view data)>;

struct LogOptions {
  std::string name;
  // Empty: all.
  std::vector<int32_t> ranks;
  // 0: all.
  int32_t attempt = 0;
  bool follow = false;
  // The last so many lines of each rank; 0: all.
  int64_t tail = 0;
  std::optional<WallTime> since;
  std::optional<WallTime> until;
  // "worker-replica-1", "service"; empty: all.
  std::vector<std::string> tasks;
  // Only lines in which this matches (RE2); empty: all.
  std::string grep;
  // Only these and worse; unspecified: all.
  v1::Severity min_severity = v1::SEVERITY_UNSPECIFIED;
  // Also the job's events, as lines of the task "service".
  bool include_events = false;
  // With `follow`: also lines that have no end yet (LogLine.partial), again
  // whenever they change.
  bool partial_lines = false;
  // DeadlineExceeded after so long; unset: none.
  std::optional<Duration> timeout;
  // As in WatchOptions; only where `follow`.
  Duration patience = std::chrono::minutes(5);
  std::function<void(const Status&)> on_interrupted;
};

struct DrainOptions {
  // For people.
  std::string reason;
  // When what still runs there is moved or killed; unset: jobs end by
  // themselves.
  std::optional<Duration> grace;
};

// Safe from any thread; calls run side by side.
class Client {
 public:
  // Reads the files and makes a channel; connects at the first call.
  // Errors: InvalidArgument the address is malformed, or plain text was asked
  // for beyond loopback; those of LoadCredentials.
  static StatusOr<std::unique_ptr<Client>> Connect(
      const ClientOptions& options);
  ~Client();

  StatusOr<v1::SubmitJobResponse> SubmitJob(const v1::JobSpec& spec,
                                            const SubmitOptions& options = {});
  // A job in the words of AI Platform. `packages`: what its packageUris stand
  // for, in their order; uploaded before.
  StatusOr<v1::SubmitJobResponse> SubmitTraining(
      const v1::TrainingJob& training, const std::vector<v1::Package>& packages,
      const SubmitOptions& options = {});
  // Sends a package's bytes, unless they are there already. Cut off, it starts
  // again: packages are known by their content, so nothing is stored twice and
  // nothing half. Returns whether it was there. `stop` may be null; stopped, it
  // is Cancelled and nothing of it is kept.
  // Errors, beside those of PackageService.UploadPackage: `read`'s own;
  // DataLoss: `read` gave fewer bytes than package.bytes.
  StatusOr<bool> UploadPackage(const v1::Package& package,
                               const PackageReader& read,
                               const UploadOptions& options, StopToken* stop);
  StatusOr<v1::Job> UpdateJob(const std::string& name,
                              const UpdateJobOptions& options);
  StatusOr<v1::Job> GetJob(const std::string& name);
  // All pages, up to the limit.
  StatusOr<std::vector<v1::Job>> ListJobs(const ListJobsOptions& options = {});
  StatusOr<v1::Job> CancelJob(const std::string& name);
  // Of a job that has ended: forgets it with its logs and events.
  Status DeleteJob(const std::string& name);
  StatusOr<v1::Directive> RequestCheckpoint(const std::string& name);
  // What a job that holds resumes from: the checkpoint of `step`, or none.
  StatusOr<v1::Job> RestoreJob(const std::string& name,
                               std::optional<int64_t> step);
  // A folder of the working directory of the task of `rank`; "": the directory
  // itself.
  StatusOr<v1::ListFilesResponse> ListFiles(const std::string& name,
                                            int32_t rank,
                                            const std::string& path);
  // Calls `sink` at least once, also for an empty file. Not tried again: the
  // file may have changed. DataLoss: it ended before its size. Errors of
  // `sink` are returned as they are.
  Status ReadFile(const std::string& name, int32_t rank,
                  const std::string& path, const FileSink& sink);

  // Calls `callback` for each message until the stream ends (OK), the callback
  // says so (OK), `stop` (Cancelled) or an error that trying again does not
  // mend. A broken stream is taken up where it was, so the callback hears of
  // every version that is still kept; after a long absence it hears a
  // snapshot again. `stop` may be null.
  Status WatchJobs(const WatchOptions& options, const WatchCallback& callback,
                   StopToken* stop);
  // Until the job's state is final; DeadlineExceeded after `timeout`. The
  // coordinator may be away meanwhile, as in WatchOptions.
  StatusOr<v1::Job> WaitJob(const std::string& name,
                            std::optional<Duration> timeout, StopToken* stop);
  // As WatchJobs. After a break each line comes once all the same.
  Status StreamLogs(const LogOptions& options, const LogCallback& callback,
                    StopToken* stop);

  // All pages.
  StatusOr<std::vector<v1::Node>> ListNodes();
  StatusOr<v1::Node> GetNode(const std::string& name);
  StatusOr<v1::Node> DrainNode(const std::string& name,
                               const DrainOptions& options = {});
  StatusOr<v1::Node> UndrainNode(const std::string& name);
  // What the node offers may be used.
  StatusOr<v1::Node> ApproveNode(const std::string& name);
  // The host is gone for good. Returns the jobs that had something there.
  StatusOr<std::vector<std::string>> ForgetNode(const std::string& name);

  const std::string& address() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// Keeps the RPC library's own log lines off stderr: what matters is in the
// Status. Call first thing in main.
void SilenceRpcLog();

// SUCCEEDED, FAILED or CANCELLED.
bool IsFinalState(v1::JobState state);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LIB_CLIENT_H_
