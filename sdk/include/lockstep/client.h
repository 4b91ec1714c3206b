// lockstep's API for programs that submit and follow jobs.
//
//   auto client = lockstep::client::Client::Connect({.address = "c:7443",
//   ...}); if (!client.ok()) return Complain(client.status()); auto job =
//   (*client)->Submit(R"({
//       "name": "hello", "kind": "JOB_KIND_PROGRAM",
//       "roles": [{"type": "TASK_TYPE_CHIEF", "count": 1,
//                  "resources": {"cpus": 1}}],
//       "argv": ["echo", "hello"]})");
//   if (job.ok()) job = (*client)->Wait("hello", std::chrono::minutes(5));
//
// Build with find_package(lockstep) and lockstep::client, or pkg-config
// lockstep-client.
//
// Jobs and specs are JSON: the messages Job and JobSpec of lockstep.v1, as
// `lockstep jobs describe NAME -o json` prints them under "lockstep", and as
// the .proto files that are installed with this header describe them. So this header needs
// neither protobuf nor gRPC, and what a newer coordinator says is not lost.
//
// Errors are absl::Status; ReasonOf(status) is the coordinator's own code for
// it, such as NEVER_FITS. Each call may also give:
//   Unavailable        nobody answers at that address
//   DeadlineExceeded   it took longer than Options::timeout
//   Unauthenticated, PermissionDenied   who we are, what we may do
// A call that changes something is safely repeated while the coordinator is
// away for a moment: it happens once.
#ifndef LOCKSTEP_CLIENT_H_
#define LOCKSTEP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep::client {

struct Options {
  // HOST:PORT of the coordinator.
  std::string address;
  // PEM files: the cluster's CA, our certificate, its key.
  std::string ca;
  std::string certificate;
  std::string key;
  // No TLS and no files; only where `address` is loopback.
  bool insecure_loopback = false;
  // Of every call but those that follow a job.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

struct Job {
  std::string name;
  // "QUEUED", "RUNNING", "SUCCEEDED", ...
  std::string state;
  // SUCCEEDED, FAILED or CANCELLED: nothing changes any more.
  bool final = false;
  // Why it is in this state: a code for programs, a sentence for people.
  std::string reason;
  std::string message;
  // Of a job that has ended: what a waiting command returns.
  int exit_code = 0;
  // All of it.
  std::string json;
};

struct Node {
  std::string name;
  std::string state;  // "READY", "UNKNOWN", ...
  std::string json;
};

struct LogLine {
  std::chrono::system_clock::time_point time;
  int rank = 0;
  int attempt = 0;
  std::string stream;  // "stdout" or "stderr".
  std::string text;    // Without the newline; any bytes.
};

// Empty where the error has none.
std::string ReasonOf(const absl::Status& status);

// Safe from any thread; calls run side by side.
class Client {
 public:
  // Reads the files and makes a channel; connects at the first call.
  // InvalidArgument: the address is malformed, or plain text was asked for
  // beyond loopback; NotFound, FailedPrecondition: the files.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const Options& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Queues a job; durable when it returns. InvalidArgument: not a JobSpec;
  // AlreadyExists: the name is taken; FailedPrecondition: it can never fit.
  absl::StatusOr<Job> Submit(const std::string& spec_json);
  absl::StatusOr<Job> Get(const std::string& name);
  // Newest first; at most `limit`, 0: all.
  absl::StatusOr<std::vector<Job>> List(int64_t limit = 0);
  absl::StatusOr<Job> Cancel(const std::string& name);
  // All ranks save at the same coming step.
  absl::Status RequestCheckpoint(const std::string& name);

  // Until the job's state is final; DeadlineExceeded after `timeout`, the job
  // goes on.
  absl::StatusOr<Job> Wait(const std::string& name,
                           std::chrono::nanoseconds timeout);
  // The lines of all ranks and attempts, then, with `follow`, those to come
  // until the job has ended. `line` returning false ends it with OK; it is
  // called on this thread. Waits for at most five minutes while the
  // coordinator is away.
  absl::Status Logs(const std::string& name, bool follow,
                    const std::function<bool(const LogLine&)>& line);

  absl::StatusOr<std::vector<Node>> ListNodes();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::client

#endif  // LOCKSTEP_CLIENT_H_
