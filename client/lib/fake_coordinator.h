// A coordinator for tests of clients. It serves the three client services over
// loopback gRPC with answers set by the test.
#ifndef LOCKSTEP_CLIENT_LIB_FAKE_COORDINATOR_H_
#define LOCKSTEP_CLIENT_LIB_FAKE_COORDINATOR_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "lockstep/v1/cluster.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/package.pb.h"

namespace lockstep::cli {

// The answers of the services, and the requests they got. Handlers copy it
// under the lock, so a test may change it at any time through Update.
struct FakeAnswers {
  std::vector<v1::Job> jobs;
  std::vector<v1::Node> nodes;
  // Sent in order by every WatchJobs of a job; then OK.
  std::vector<v1::WatchJobsResponse> watch;
  // Sent by every StreamLogs that selects this rank.
  std::vector<v1::LogLine> lines;
  // If not empty, the next calls of any method return these, one each.
  std::vector<Status> errors;
  // The number of streams that break with `break_error` after `break_after`
  // messages.
  int breaks = 0;
  int break_after = 0;
  Status break_error = Unavailable("the coordinator is stopping");
  // A requested checkpoint is complete at once.
  bool completes_checkpoints = true;
  // Watch and log streams stay open after their last message.
  bool endless = false;
  // Added to the answer of every SubmitJob of a training job.
  v1::SubmitJobResponse training_answer;
  // Training jobs get the state of training_answer at once, not QUEUED.
  bool keeps_training_state = false;
  // Whole packages, by digest.
  std::map<std::string, std::string> packages;
  // New uploads read nothing and never finish.
  bool stalls_uploads = false;
  // The number of uploads that break UNAVAILABLE after their first piece.
  int upload_breaks = 0;

  // The results of ListFiles and ReadFile, by "RANK/PATH".
  std::map<std::string, v1::ListFilesResponse> folders;
  std::map<std::string, std::string> files;
  // The result of CollectEvidence, and its requests.
  v1::JobEvidence evidence;
  v1::JobEvidence kept_evidence;
  std::vector<v1::CollectEvidenceRequest> evidence_requests;
  // Reads break UNAVAILABLE after this number of bytes. 0 for never.
  size_t file_break = 0;

  // Received requests.
  int gets = 0;  // Of a job.
  std::vector<v1::SubmitJobRequest> submits;
  std::vector<v1::UpdateJobRequest> updates;
  std::vector<v1::ListJobsRequest> lists;
  // First messages of UploadPackage, and the number of their pieces.
  std::vector<v1::Package> uploads;
  int upload_pieces = 0;
  std::vector<v1::WatchJobsRequest> watches;
  std::vector<v1::StreamLogsRequest> log_requests;
  std::vector<std::string> cancelled;
  std::vector<std::string> checkpoints;
  std::vector<v1::RestoreJobRequest> restores;
  std::vector<v1::ResizeJobRequest> resizes;
  std::vector<std::string> deleted;
  std::vector<v1::DrainNodeRequest> drains;
  std::vector<std::string> undrained;
  std::vector<std::string> approved;
  std::vector<std::string> forgotten;
  // What CheckNode answers, and the requests.
  v1::CheckNodeResponse gpu_checks;
  std::vector<v1::CheckNodeRequest> checked;
};

// Cancel makes a job CANCELLED; Delete removes an ended one. A drained node
// with jobs is DRAINING, otherwise DRAINED, and only a silent one can be
// forgotten. A checkpoint is complete at once, one step after the last. Submit
// queues the job as submitted, or the job of that name set by the test; a taken
// name of a training job is rejected.
class FakeCoordinator {
 public:
  // Insecure, so only on loopback; port 0 takes a free one.
  static StatusOr<std::unique_ptr<FakeCoordinator>> Start(
      const std::string& address = "127.0.0.1:0");
  ~FakeCoordinator();

  const std::string& address() const;
  void Update(const std::function<void(FakeAnswers*)>& change);
  FakeAnswers Answers() const;

 private:
  struct Impl;
  explicit FakeCoordinator(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_LIB_FAKE_COORDINATOR_H_
