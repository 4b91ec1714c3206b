// lockstep's API for C++ programs, without gRPC: submit jobs, watch them,
// read their logs, look at nodes.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto client, Client::Connect(options));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto answer, client->SubmitJob(spec));
//   LOCKSTEP_ASSIGN_OR_RETURN(v1::Job job,
//                             client->WaitJob(spec.name(), {}, nullptr));
//
// Messages are those of proto/lockstep/v1, which documents each field and each
// method's errors. Errors are Status; ReasonOf(status) is the coordinator's
// reason code. Each call may also return:
//   Unavailable        no coordinator answers at the address
//   DeadlineExceeded   it took longer than ClientOptions::timeout
//   Unauthenticated, PermissionDenied   the caller's identity or role
// A call that changes state carries its own request id and is retried safely
// while the coordinator is briefly unavailable.
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
#include "lockstep/v1/evidence.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/session.pb.h"
#include "lockstep/v1/task.pb.h"
#include "lockstep/v1/training.pb.h"

namespace lockstep::cli {

class Session;

struct ClientOptions {
  // HOST:PORT of the coordinator.
  std::string address;
  // PEM files: the cluster's CA, the client's certificate and its key.
  std::string ca;
  std::string certificate;
  std::string key;
  // No TLS and no files. Allowed only if `address` is loopback.
  bool insecure_loopback = false;
  // For every call except streams.
  Duration timeout = std::chrono::seconds(30);
};

struct SubmitOptions {
  // Checks and plans without changes.
  bool validate_only = false;
  // Empty for a new one. The same id with the same spec returns the first
  // answer.
  std::string request_id;
};

struct UpdateJobOptions {
  bool clear_labels = false;
  std::vector<std::string> remove_labels;
  // Set after removals.
  std::map<std::string, std::string> labels;
  // Absent for no change.
  std::optional<int32_t> priority = std::nullopt;
  // Applies only if the job is at this version. 0 for any.
  int64_t resource_version = 0;
};

// Reads up to `size` bytes at `offset` of a package into `buffer` and returns
// their number, 0 at its end. Called on the thread of the call.
using PackageReader =
    std::function<StatusOr<size_t>(uint64_t offset, char* buffer, size_t size)>;

struct UploadOptions {
  // Called with the number of bytes sent, about every 1 MiB.
  std::function<void(uint64_t)> on_progress;
  // The coordinator counts as unavailable after this time without a byte
  // moving.
  Duration stall = std::chrono::seconds(60);
  // How long it may be unavailable before the upload fails. If it was never
  // reachable, the upload fails at once.
  Duration patience = std::chrono::minutes(2);
};

struct ListJobsOptions {
  // Empty for all.
  std::vector<v1::JobState> states;
  // As ListJobsRequest.filter. Empty for all.
  std::string filter;
  // The maximum number of jobs, newest first. 0 for all.
  int64_t limit = 0;
  // Jobs per call. 0 for the maximum.
  int32_t page_size = 0;
};

struct WatchOptions {
  // Empty for all jobs.
  std::string name;
  // 0 to begin with a snapshot.
  int64_t resource_version = 0;
  // How long the coordinator may be unavailable before the watch fails.
  Duration patience = std::chrono::minutes(5);
  // Called each time the stream breaks, before the retry.
  std::function<void(const Status&)> on_interrupted;
};

// Returning false ends the stream with OK. Called on the thread of the call.
using WatchCallback = std::function<bool(const v1::WatchJobsResponse&)>;
using LogCallback = std::function<bool(const v1::LogLine&)>;
// Gets the bytes of a file in order; `size` is the file's. An error ends the
// call.
using FileSink = std::function<Status(int64_t size, std::string_view data)>;

struct LogOptions {
  std::string name;
  // Empty for all.
  std::vector<int32_t> ranks;
  // 0 for all.
  int32_t attempt = 0;
  bool follow = false;
  // The last lines of each rank. 0 for all.
  int64_t tail = 0;
  std::optional<WallTime> since;
  std::optional<WallTime> until;
  // "worker-replica-1", "service". Empty for all.
  std::vector<std::string> tasks;
  // Selects lines that contain a match of this RE2. Empty for all.
  std::string grep;
  // The least severity. Unspecified for all.
  v1::Severity min_severity = v1::SEVERITY_UNSPECIFIED;
  // Includes the job's events as lines of the task "service".
  bool include_events = false;
  // With `follow`: includes unfinished lines (LogLine.partial), again after
  // each change.
  bool partial_lines = false;
  // DeadlineExceeded after this time. Unset for no limit.
  std::optional<Duration> timeout;
  // As in WatchOptions. Applies with `follow`.
  Duration patience = std::chrono::minutes(5);
  std::function<void(const Status&)> on_interrupted;
};

struct DrainOptions {
  // A text for users.
  std::string reason;
  // Ranks that still run after this time are moved or killed. Unset to let jobs
  // finish.
  std::optional<Duration> grace;
};

// Safe from any thread; calls run concurrently.
class Client {
 public:
  // Reads the files and creates a channel, which connects at the first call.
  // Errors: InvalidArgument if the address is malformed or plain text is not on
  // loopback; those of LoadCredentials.
  static StatusOr<std::unique_ptr<Client>> Connect(
      const ClientOptions& options);
  ~Client();

  StatusOr<v1::SubmitJobResponse> SubmitJob(const v1::JobSpec& spec,
                                            const SubmitOptions& options = {});
  // Submits a job in AI Platform's terms. `packages` are the uploaded files of
  // its packageUris, in their order.
  StatusOr<v1::SubmitJobResponse> SubmitTraining(
      const v1::TrainingJob& training, const std::vector<v1::Package>& packages,
      const SubmitOptions& options = {});
  // Uploads a package unless the coordinator has it. After an interruption it
  // starts again; packages are stored by content, so no copy is duplicated or
  // partial. Returns true if it existed. `stop` may be null; a stopped upload
  // is Cancelled and leaves nothing. Errors besides those of
  // PackageService.UploadPackage: `read`'s own; DataLoss if `read` gave fewer
  // bytes than package.bytes.
  StatusOr<bool> UploadPackage(const v1::Package& package,
                               const PackageReader& read,
                               const UploadOptions& options, StopToken* stop);
  StatusOr<v1::Job> UpdateJob(const std::string& name,
                              const UpdateJobOptions& options);
  StatusOr<v1::Job> GetJob(const std::string& name);
  // Returns all pages, up to the limit.
  StatusOr<std::vector<v1::Job>> ListJobs(const ListJobsOptions& options = {});
  StatusOr<v1::Job> CancelJob(const std::string& name);
  // Deletes an ended job with its logs and events.
  Status DeleteJob(const std::string& name);
  StatusOr<v1::Directive> RequestCheckpoint(const std::string& name);
  // Sets the checkpoint that a held job resumes from: `step`, or none.
  StatusOr<v1::Job> RestoreJob(const std::string& name,
                               std::optional<int64_t> step);
  // Lists a folder of the working directory of the task of `rank`; "" for the
  // directory itself.
  StatusOr<v1::ListFilesResponse> ListFiles(const std::string& name,
                                            int32_t rank,
                                            const std::string& path);
  // Asks what ranks of a running job do; all of them if `ranks` is empty.
  StatusOr<v1::JobEvidence> CollectEvidence(const std::string& name,
                                            const std::vector<int32_t>& ranks);
  // Asks what the nodes kept of the ended attempt with this number, or, for 0,
  // of the newest one whose ranks stood still.
  StatusOr<v1::JobEvidence> KeptEvidence(const std::string& name,
                                         int32_t attempt);
  // Calls `sink` at least once, even for an empty file. Not retried, because
  // the file may have changed. DataLoss if it ended early. Errors of `sink` are
  // returned unchanged.
  Status ReadFile(const std::string& name, int32_t rank,
                  const std::string& path, const FileSink& sink);

  // Calls `callback` for each message until the stream ends (OK), the callback
  // returns false (OK), `stop` (Cancelled) or an error that a retry cannot fix.
  // A broken stream resumes at its position, so the callback gets every
  // retained version; after a long interruption it gets a new snapshot. `stop`
  // may be null.
  Status WatchJobs(const WatchOptions& options, const WatchCallback& callback,
                   StopToken* stop);
  // Waits until the job's state is final. DeadlineExceeded after `timeout`. The
  // coordinator may be unavailable meanwhile, as in WatchOptions.
  StatusOr<v1::Job> WaitJob(const std::string& name,
                            std::optional<Duration> timeout, StopToken* stop);
  // As WatchJobs. Each line arrives once even after a break.
  Status StreamLogs(const LogOptions& options, const LogCallback& callback,
                    StopToken* stop);

  // Returns all pages.
  StatusOr<std::vector<v1::Node>> ListNodes();
  StatusOr<v1::Node> GetNode(const std::string& name);
  StatusOr<v1::Node> DrainNode(const std::string& name,
                               const DrainOptions& options = {});
  // `gpus` not empty: only lifts the faults of these GPUs.
  StatusOr<v1::Node> UndrainNode(const std::string& name,
                                 const std::vector<int32_t>& gpus = {});
  // Approves the resources that the node offers.
  StatusOr<v1::Node> ApproveNode(const std::string& name);
  // Declares the host gone for good. Returns the affected jobs.
  StatusOr<std::vector<std::string>> ForgetNode(const std::string& name);

  const std::string& address() const;

 private:
  friend std::unique_ptr<Session> OpenSession(
      Client* client, const v1::SessionRequest& request);
  friend StatusOr<v1::CheckNodeResponse> CheckNode(
      Client* client, const std::string& name,
      const std::vector<int32_t>& gpus);
  friend StatusOr<v1::Job> ResizeJob(Client* client, const std::string& name,
                                     int32_t tasks);
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

// Checks GPUs of a node that no job holds; empty: all of them. Takes about 20
// s, and at most 2 min, whatever ClientOptions::timeout is.
StatusOr<v1::CheckNodeResponse> CheckNode(Client* client,
                                          const std::string& name,
                                          const std::vector<int32_t>& gpus);

// Sets how many tasks of chief and workers the job has at most.
StatusOr<v1::Job> ResizeJob(Client* client, const std::string& name,
                            int32_t tasks);

// Suppresses the RPC library's log lines on stderr; the Status has the relevant
// error. Call it first in main.
void SilenceRpcLog();

// SUCCEEDED, FAILED or CANCELLED.
bool IsFinalState(v1::JobState state);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LIB_CLIENT_H_
