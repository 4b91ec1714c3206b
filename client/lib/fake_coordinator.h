// A coordinator for tests of clients: its three services of clients over
// loopback gRPC that answer from what the test put there.
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

namespace lockstep {

// What the services answer, and what they were asked. Handlers take a copy
// under the lock, so a test may change it at any time through Update.
struct FakeAnswers {
  std::vector<v1::Job> jobs;
  std::vector<v1::Node> nodes;
  // Sent one after the other by every WatchJobs of a job; then OK.
  std::vector<v1::WatchJobsResponse> watch;
  // Sent by every StreamLogs that wants this rank.
  std::vector<v1::LogLine> lines;
  // Where set, what the next calls of any method answer: one each.
  std::vector<Status> errors;
  // How many streams break with `break_error` after `break_after` messages.
  int breaks = 0;
  int break_after = 0;
  Status break_error = Unavailable("the coordinator is stopping");
  // A requested checkpoint is complete at once.
  bool completes_checkpoints = true;
  // A watch or log stream goes on for ever after its last message.
  bool endless = false;
  // What every SubmitJob of a training job says beside the job.
  v1::SubmitJobResponse training_answer;
  // Training jobs have the state of training_answer at once, not QUEUED.
  bool keeps_training_state = false;
  // Whole packages, by digest.
  std::map<std::string, std::string> packages;
  // Uploads that begin from now on take nothing and wait for ever.
  bool stalls_uploads = false;
  // How many uploads break UNAVAILABLE after their first piece.
  int upload_breaks = 0;

  // What ListFiles and ReadFile find, by "RANK/PATH".
  std::map<std::string, v1::ListFilesResponse> folders;
  std::map<std::string, std::string> files;
  // Reads break UNAVAILABLE after so many bytes; 0: never.
  size_t file_break = 0;

  // What came in.
  int gets = 0;  // Of a job.
  std::vector<v1::SubmitJobRequest> submits;
  std::vector<v1::UpdateJobRequest> updates;
  std::vector<v1::ListJobsRequest> lists;
  // First messages of UploadPackage, and of how many pieces came.
  std::vector<v1::Package> uploads;
  int upload_pieces = 0;
  std::vector<v1::WatchJobsRequest> watches;
  std::vector<v1::StreamLogsRequest> log_requests;
  std::vector<std::string> cancelled;
  std::vector<std::string> checkpoints;
  std::vector<v1::RestoreJobRequest> restores;
  std::vector<std::string> deleted;
  std::vector<v1::DrainNodeRequest> drains;
  std::vector<std::string> undrained;
  std::vector<std::string> approved;
  std::vector<std::string> forgotten;
};

// Cancel makes a job CANCELLED; Delete takes an ended one away; a node with
// jobs is DRAINING, else DRAINED, and only a silent one can be forgotten. A
// checkpoint is there at once, at the step after the last one. Submit queues
// one as it was asked for, or the job of that name where the test put one; a
// training job's name is refused when it is taken.
class FakeCoordinator {
 public:
  // Insecure, so on loopback; port 0 takes a free one.
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

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_LIB_FAKE_COORDINATOR_H_
