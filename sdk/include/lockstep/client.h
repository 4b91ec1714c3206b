// lockstep's API for programs that submit and follow jobs.
//
//   auto client =
//       lockstep::client::Client::Connect({.address = "c:7443", ...});
//   if (!client.ok()) return Complain(client.status());
//   auto job = (*client)->Submit(R"({
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
// `lockstep jobs describe NAME -o json` prints them under "lockstep". The
// installed .proto files describe them. So this header needs neither protobuf
// nor gRPC, and fields of a newer coordinator are kept.
//
// Errors are absl::Status; ReasonOf(status) is the coordinator's own code, such
// as NEVER_FITS. Each call may also return:
//   Unavailable        the address does not answer
//   DeadlineExceeded   the call took longer than Options::timeout
//   Unauthenticated, PermissionDenied   unknown caller, missing rights
// Calls that change something are retried safely while the coordinator is
// briefly unavailable: they take effect once.
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
  // PEM files: the cluster's CA, the caller's certificate and its key.
  std::string ca;
  std::string certificate;
  std::string key;
  // Without TLS and files; only if `address` is on loopback.
  bool insecure_loopback = false;
  // Timeout of every call except those that follow a job.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

struct Job {
  std::string name;
  // "QUEUED", "RUNNING", "SUCCEEDED", ...
  std::string state;
  // SUCCEEDED, FAILED or CANCELLED: the state is final.
  bool final = false;
  // Reason for the state: a code for programs, a sentence for users.
  std::string reason;
  std::string message;
  // Exit code of an ended job, as a waiting command returns it.
  int exit_code = 0;
  // The complete Job as JSON.
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

// Returns the reason of an error, or "" if it has none.
std::string ReasonOf(const absl::Status& status);

// Safe from any thread; calls run concurrently.
class Client {
 public:
  // Reads the files and creates a channel, which connects at the first call.
  // InvalidArgument: the address is malformed, or not on loopback without TLS.
  // NotFound, FailedPrecondition: the files.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const Options& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Queues a job; it is durable when this returns. InvalidArgument: not a
  // JobSpec; AlreadyExists: the name is taken; FailedPrecondition: it can never
  // fit.
  absl::StatusOr<Job> Submit(const std::string& spec_json);
  absl::StatusOr<Job> Get(const std::string& name);
  // Returns the newest jobs first, at most `limit`; 0: all.
  absl::StatusOr<std::vector<Job>> List(int64_t limit = 0);
  absl::StatusOr<Job> Cancel(const std::string& name);
  // Requests a checkpoint: all ranks save it at the same future step.
  absl::Status RequestCheckpoint(const std::string& name);

  // Waits until the job's state is final. DeadlineExceeded after `timeout`; the
  // job continues.
  absl::StatusOr<Job> Wait(const std::string& name,
                           std::chrono::nanoseconds timeout);
  // Passes the existing lines of all ranks and attempts to `line`, then, with
  // `follow`, new lines until the job ends. Calls `line` on this thread; it
  // returns false to stop with OK. Waits at most five minutes for an
  // unavailable coordinator.
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
