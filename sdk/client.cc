// The installed API of clients, over the one that is used inside.
#include "sdk/include/lockstep/client.h"

#include <google/protobuf/util/json_util.h>

#include <utility>

#include "client/lib/client.h"

namespace lockstep::client {
namespace {

using Inner = ::lockstep::cli::Client;

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Only a google.protobuf.Any of an unknown type fails; there is none.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

// "JOB_STATE_RUNNING" -> "RUNNING"; of an enum value that is not known here
// its number.
std::string Short(const std::string& name, int number, size_t prefix) {
  return name.size() > prefix ? name.substr(prefix) : std::to_string(number);
}

Job ToJob(const v1::Job& job) {
  Job out;
  out.name = job.name();
  out.state = Short(v1::JobState_Name(job.state()), job.state(),
                    sizeof("JOB_STATE_") - 1);
  out.final = cli::IsFinalState(job.state());
  out.reason = Short(v1::Reason_Name(job.cause().reason()),
                     job.cause().reason(), sizeof("REASON_") - 1);
  if (job.cause().reason() == 0) out.reason.clear();
  out.message = job.cause().message();
  out.exit_code = job.exit_code();
  out.json = ToJson(job);
  return out;
}

absl::StatusOr<Job> ToJob(const StatusOr<v1::Job>& job) {
  if (!job.ok()) return job.status();
  return ToJob(*job);
}

}  // namespace

struct Client::Impl {
  std::unique_ptr<Inner> client;
};

std::string ReasonOf(const absl::Status& status) {
  return ::lockstep::ReasonOf(status);
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(
    const Options& options) {
  // The program's stderr is not the RPC library's.
  cli::SilenceRpcLog();
  cli::ClientOptions inner;
  inner.address = options.address;
  inner.ca = options.ca;
  inner.certificate = options.certificate;
  inner.key = options.key;
  inner.insecure_loopback = options.insecure_loopback;
  inner.timeout = options.timeout;
  LOCKSTEP_ASSIGN_OR_RETURN(auto client, Inner::Connect(inner));
  auto impl = std::make_unique<Impl>();
  impl->client = std::move(client);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<Job> Client::Submit(const std::string& spec_json) {
  v1::JobSpec spec;
  const auto parsed =
      google::protobuf::util::JsonStringToMessage(spec_json, &spec);
  if (!parsed.ok()) {
    return InvalidArgument(
        "the text is not a JobSpec: {}",
        std::string(parsed.message().data(), parsed.message().size()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::SubmitJobResponse answer,
                            impl_->client->SubmitJob(spec));
  return ToJob(answer.job());
}

absl::StatusOr<Job> Client::Get(const std::string& name) {
  return ToJob(impl_->client->GetJob(name));
}

absl::StatusOr<std::vector<Job>> Client::List(int64_t limit) {
  cli::ListJobsOptions options;
  options.limit = limit;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto jobs, impl_->client->ListJobs(options));
  std::vector<Job> out;
  for (const v1::Job& job : jobs) out.push_back(ToJob(job));
  return out;
}

absl::StatusOr<Job> Client::Cancel(const std::string& name) {
  return ToJob(impl_->client->CancelJob(name));
}

absl::Status Client::RequestCheckpoint(const std::string& name) {
  return impl_->client->RequestCheckpoint(name).status();
}

absl::StatusOr<Job> Client::Wait(const std::string& name,
                                 std::chrono::nanoseconds timeout) {
  return ToJob(impl_->client->WaitJob(name, timeout, nullptr));
}

absl::Status Client::Logs(const std::string& name, bool follow,
                          const std::function<bool(const LogLine&)>& line) {
  cli::LogOptions options;
  options.name = name;
  options.follow = follow;
  return impl_->client->StreamLogs(
      options,
      [&line](const v1::LogLine& from) {
        LogLine to;
        to.time = std::chrono::system_clock::time_point(
            std::chrono::duration_cast<std::chrono::system_clock::duration>(
                std::chrono::seconds(from.time().seconds()) +
                std::chrono::nanoseconds(from.time().nanos())));
        to.rank = from.rank();
        to.attempt = from.attempt();
        to.stream = from.stream();
        to.text = from.text();
        return line(to);
      },
      nullptr);
}

absl::StatusOr<std::vector<Node>> Client::ListNodes() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, impl_->client->ListNodes());
  std::vector<Node> out;
  for (const v1::Node& node : nodes) {
    out.push_back({node.name(),
                   Short(v1::NodeState_Name(node.state()), node.state(),
                         sizeof("NODE_STATE_") - 1),
                   ToJson(node)});
  }
  return out;
}

}  // namespace lockstep::client
