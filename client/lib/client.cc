#include "client/lib/client.h"

#include <algorithm>
#include <utility>

#include "client/lib/client_impl.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/pki/credentials.h"
#include "common/pki/validity.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/status_conversion.h"

namespace lockstep::cli {
namespace {

constexpr int kPageSize = 500;

v1::SubmitJobRequest SubmitRequest(const SubmitOptions& options) {
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty() ? RandomUuid()
                                                    : options.request_id);
  request.set_validate_only(options.validate_only);
  return request;
}

}  // namespace

Status FromServer(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return Unavailable("the coordinator is stopping");
  }
  return FromGrpc(status);
}

namespace {

// Time limit for fetching a server's rejected certificate.
constexpr Duration kPeekTime = std::chrono::seconds(2);

// Rewrites gRPC's error about a connection that was never made.
Status Unreachable(const std::string& address, const std::string& text) {
  const auto says = [&](const char* part) {
    return text.find(part) != std::string::npos;
  };
  const WallTime now = SystemClock().Now().wall;
  if (says("certificate verify failed")) {
    if (const Status dates = pki::CheckServerDates(address, now, kPeekTime);
        !dates.ok()) {
      return Unavailable("{}", Message(dates));
    }
    return Unavailable(
        "{} has a certificate of another CA: give --ca, --cert and "
        "--key of its cluster",
        address);
  }
  if (says("WRONG_VERSION_NUMBER") || says("wrong version number")) {
    return Unavailable(
        "{} does not speak TLS: is it a coordinator's gRPC port? Without "
        "TLS give --insecure-loopback",
        address);
  }
  if (says("Socket closed") || says("handshake") || says("Handshake")) {
    return Unavailable(
        "{} closes the connection: it speaks TLS but --insecure-loopback is "
        "given, it does not know the CA of your certificate, your certificate "
        "is "
        "expired or not valid yet (this machine's clock says {}; does its "
        "clock?), or it is not a coordinator",
        address, FormatWallTime(now));
  }
  const bool loopback =
      address.starts_with("127.") || address.starts_with("localhost:");
  return Unavailable(
      "cannot reach the coordinator at {}: {}; is it running there{}?", address,
      says("Connection refused") ? "connection refused" : text,
      loopback ? " (`lockstep local up` starts one on this machine)" : "");
}

}  // namespace

bool NeverConnected(const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return false;
  const std::string& text = status.error_message();
  for (const char* part :
       {"failed to connect", "DNS resolution failed", "andshake"}) {
    if (text.find(part) != std::string::npos) return true;
  }
  return false;
}

Status Convert(const grpc::Status& status, const std::string& address) {
  const Status converted = FromServer(status);
  if (converted.code() == StatusCode::kUnavailable &&
      ReasonOf(converted).empty()) {
    if (NeverConnected(status)) return Unreachable(address, Message(converted));
    return Annotate(converted, "the coordinator at " + address);
  }
  if (converted.code() == StatusCode::kDeadlineExceeded) {
    return Annotate(converted, "no answer from the coordinator at " + address);
  }
  return converted;
}

bool IsFinalState(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

const std::string& Client::address() const { return impl_->options.address; }

StatusOr<std::unique_ptr<Client>> Client::Connect(
    const ClientOptions& options) {
  ChannelOptions channel_options;
  channel_options.target = options.address;
  channel_options.insecure_loopback = options.insecure_loopback;
  if (!options.insecure_loopback) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        channel_options.credentials,
        pki::LoadCredentials(RealFileSystem(),
                             {options.ca, options.certificate, options.key},
                             SystemClock().Now().wall));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                            MakeChannel(channel_options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->jobs = v1::JobService::NewStub(channel);
  impl->cluster = v1::ClusterService::NewStub(channel);
  impl->packages = v1::PackageService::NewStub(channel);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

StatusOr<v1::SubmitJobResponse> Client::SubmitJob(
    const v1::JobSpec& spec, const SubmitOptions& options) {
  v1::SubmitJobRequest request = SubmitRequest(options);
  *request.mutable_spec() = spec;
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::SubmitJob, request);
}

StatusOr<v1::SubmitJobResponse> Client::SubmitTraining(
    const v1::TrainingJob& training, const std::vector<v1::Package>& packages,
    const SubmitOptions& options) {
  v1::SubmitJobRequest request = SubmitRequest(options);
  *request.mutable_training() = training;
  for (const v1::Package& package : packages) {
    *request.add_packages() = package;
  }
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::SubmitJob, request);
}

StatusOr<v1::Job> Client::UpdateJob(const std::string& name,
                                    const UpdateJobOptions& options) {
  v1::UpdateJobRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  request.set_clear_labels(options.clear_labels);
  for (const std::string& key : options.remove_labels) {
    request.add_remove_labels(key);
  }
  for (const auto& [key, value] : options.labels) {
    (*request.mutable_labels())[key] = value;
  }
  if (options.priority) request.set_priority(*options.priority);
  request.set_resource_version(options.resource_version);
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::UpdateJob, request);
}

StatusOr<v1::Job> Client::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::GetJob, request);
}

StatusOr<std::vector<v1::Job>> Client::ListJobs(
    const ListJobsOptions& options) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  for (const v1::JobState state : options.states) request.add_states(state);
  request.set_filter(options.filter);
  do {
    const int32_t most = options.page_size > 0
                             ? std::min(options.page_size, kPageSize)
                             : kPageSize;
    request.set_page_size(most);
    if (options.limit > 0) {
      request.set_page_size(static_cast<int32_t>(std::min<int64_t>(
          most, options.limit - static_cast<int64_t>(jobs.size()))));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        v1::ListJobsResponse response,
        impl_->Call(impl_->jobs, &v1::JobService::Stub::ListJobs, request));
    for (v1::Job& job : *response.mutable_jobs()) {
      jobs.push_back(std::move(job));
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty() &&
           (options.limit <= 0 ||
            static_cast<int64_t>(jobs.size()) < options.limit));
  if (options.limit > 0 && static_cast<int64_t>(jobs.size()) > options.limit) {
    jobs.resize(options.limit);
  }
  return jobs;
}

StatusOr<v1::Job> Client::CancelJob(const std::string& name) {
  v1::CancelJobRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::CancelJob, request);
}

Status Client::DeleteJob(const std::string& name) {
  v1::DeleteJobRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::DeleteJob, request)
      .status();
}

StatusOr<v1::Directive> Client::RequestCheckpoint(const std::string& name) {
  v1::RequestCheckpointRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::RequestCheckpointResponse response,
      impl_->Call(impl_->jobs, &v1::JobService::Stub::RequestCheckpoint,
                  request));
  return response.directive();
}

StatusOr<v1::Job> Client::RestoreJob(const std::string& name,
                                     std::optional<int64_t> step) {
  v1::RestoreJobRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  if (step) {
    request.mutable_target()->set_step(*step);
  } else {
    request.mutable_target()->set_from_start(true);
  }
  return impl_->Call(impl_->jobs, &v1::JobService::Stub::RestoreJob, request);
}

StatusOr<v1::Job> ResizeJob(Client* client, const std::string& name,
                            int32_t tasks) {
  v1::ResizeJobRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  request.set_tasks(tasks);
  Client::Impl& impl = *client->impl_;
  return impl.Call(impl.jobs, &v1::JobService::Stub::ResizeJob, request);
}

StatusOr<std::vector<v1::Node>> Client::ListNodes() {
  std::vector<v1::Node> nodes;
  v1::ListNodesRequest request;
  request.set_page_size(kPageSize);
  do {
    LOCKSTEP_ASSIGN_OR_RETURN(
        v1::ListNodesResponse response,
        impl_->Call(impl_->cluster, &v1::ClusterService::Stub::ListNodes,
                    request));
    for (v1::Node& node : *response.mutable_nodes()) {
      nodes.push_back(std::move(node));
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return nodes;
}

StatusOr<v1::Node> Client::GetNode(const std::string& name) {
  v1::GetNodeRequest request;
  request.set_name(name);
  return impl_->Call(impl_->cluster, &v1::ClusterService::Stub::GetNode,
                     request);
}

StatusOr<v1::Node> Client::DrainNode(const std::string& name,
                                     const DrainOptions& options) {
  v1::DrainNodeRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  request.set_reason(options.reason);
  if (options.grace) {
    const int64_t nanos = options.grace->count();
    request.mutable_grace()->set_seconds(nanos / 1'000'000'000);
    request.mutable_grace()->set_nanos(
        static_cast<int32_t>(nanos % 1'000'000'000));
  }
  return impl_->Call(impl_->cluster, &v1::ClusterService::Stub::DrainNode,
                     request);
}

StatusOr<v1::Node> Client::UndrainNode(const std::string& name,
                                       const std::vector<int32_t>& gpus) {
  v1::UndrainNodeRequest request;
  request.mutable_gpus()->Add(gpus.begin(), gpus.end());
  request.set_request_id(RandomUuid());
  request.set_name(name);
  return impl_->Call(impl_->cluster, &v1::ClusterService::Stub::UndrainNode,
                     request);
}

StatusOr<v1::Node> Client::ApproveNode(const std::string& name) {
  v1::ApproveNodeRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  return impl_->Call(impl_->cluster, &v1::ClusterService::Stub::ApproveNode,
                     request);
}

StatusOr<std::vector<std::string>> Client::ForgetNode(const std::string& name) {
  v1::ForgetNodeRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::ForgetNodeResponse response,
      impl_->Call(impl_->cluster, &v1::ClusterService::Stub::ForgetNode,
                  request));
  return std::vector<std::string>(response.jobs().begin(),
                                  response.jobs().end());
}

StatusOr<v1::CheckNodeResponse> CheckNode(Client* client,
                                          const std::string& name,
                                          const std::vector<int32_t>& gpus) {
  v1::CheckNodeRequest request;
  request.mutable_gpus()->Add(gpus.begin(), gpus.end());
  request.set_request_id(RandomUuid());
  request.set_name(name);
  return client->impl_->Call(client->impl_->cluster,
                             &v1::ClusterService::Stub::CheckNode, request,
                             std::chrono::minutes(2));
}

void SilenceRpcLog() { RedirectGrpcLog(GrpcLog::kSilent); }

}  // namespace lockstep::cli
