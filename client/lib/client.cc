#include "client/lib/client.h"

#include <algorithm>
#include <utility>

#include "client/lib/client_impl.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/pki/credentials.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/status_conversion.h"

namespace lockstep {
namespace {

constexpr int kPageSize = 500;

}  // namespace

Status FromServer(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return Unavailable("the coordinator is stopping");
  }
  return FromGrpc(status);
}

Status Convert(const grpc::Status& status, const std::string& address) {
  const Status converted = FromServer(status);
  if (converted.code() == StatusCode::kUnavailable &&
      ReasonOf(converted).empty()) {
    const std::string text = Message(converted);
    // What gRPC's channel says of a connection that never was.
    for (const char* part :
         {"failed to connect", "DNS resolution failed", "andshake"}) {
      if (text.find(part) == std::string::npos) continue;
      return Unavailable(
          "cannot reach the coordinator at {}: {}; is it running there, and "
          "are --ca and --cert of its cluster?",
          address, text);
    }
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
        LoadCredentials(RealFileSystem(),
                        {options.ca, options.certificate, options.key},
                        SystemClock().Now().wall));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                            MakeChannel(channel_options));
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->jobs = v1::JobService::NewStub(channel);
  impl->cluster = v1::ClusterService::NewStub(channel);
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

StatusOr<v1::SubmitJobResponse> Client::SubmitJob(
    const v1::JobSpec& spec, const SubmitOptions& options) {
  v1::SubmitJobRequest request;
  request.set_request_id(options.request_id.empty() ? RandomUuid()
                                                    : options.request_id);
  *request.mutable_spec() = spec;
  request.set_validate_only(options.validate_only);
  v1::SubmitJobResponse response;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(
      Convert(impl_->jobs->SubmitJob(&context, request, &response), address()));
  return response;
}

StatusOr<v1::Job> Client::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  v1::Job job;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(
      Convert(impl_->jobs->GetJob(&context, request, &job), address()));
  return job;
}

StatusOr<std::vector<v1::Job>> Client::ListJobs(
    const ListJobsOptions& options) {
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  for (const v1::JobState state : options.states) request.add_states(state);
  do {
    request.set_page_size(kPageSize);
    if (options.limit > 0) {
      request.set_page_size(static_cast<int32_t>(std::min<int64_t>(
          kPageSize, options.limit - static_cast<int64_t>(jobs.size()))));
    }
    v1::ListJobsResponse response;
    grpc::ClientContext context;
    impl_->Prepare(&context);
    LOCKSTEP_RETURN_IF_ERROR(Convert(
        impl_->jobs->ListJobs(&context, request, &response), address()));
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
  v1::Job job;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(
      Convert(impl_->jobs->CancelJob(&context, request, &job), address()));
  return job;
}

Status Client::DeleteJob(const std::string& name) {
  v1::DeleteJobRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  v1::DeleteJobResponse response;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  return Convert(impl_->jobs->DeleteJob(&context, request, &response),
                 address());
}

StatusOr<v1::Directive> Client::RequestCheckpoint(const std::string& name) {
  v1::RequestCheckpointRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  v1::RequestCheckpointResponse response;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(Convert(
      impl_->jobs->RequestCheckpoint(&context, request, &response), address()));
  return response.directive();
}

StatusOr<std::vector<v1::Node>> Client::ListNodes() {
  std::vector<v1::Node> nodes;
  v1::ListNodesRequest request;
  request.set_page_size(kPageSize);
  do {
    v1::ListNodesResponse response;
    grpc::ClientContext context;
    impl_->Prepare(&context);
    LOCKSTEP_RETURN_IF_ERROR(Convert(
        impl_->cluster->ListNodes(&context, request, &response), address()));
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
  v1::Node node;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(
      Convert(impl_->cluster->GetNode(&context, request, &node), address()));
  return node;
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
  v1::Node node;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(
      Convert(impl_->cluster->DrainNode(&context, request, &node), address()));
  return node;
}

StatusOr<v1::Node> Client::UndrainNode(const std::string& name) {
  v1::UndrainNodeRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  v1::Node node;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(Convert(
      impl_->cluster->UndrainNode(&context, request, &node), address()));
  return node;
}

StatusOr<std::vector<std::string>> Client::ForgetNode(const std::string& name) {
  v1::ForgetNodeRequest request;
  request.set_request_id(RandomUuid());
  request.set_name(name);
  v1::ForgetNodeResponse response;
  grpc::ClientContext context;
  impl_->Prepare(&context);
  LOCKSTEP_RETURN_IF_ERROR(Convert(
      impl_->cluster->ForgetNode(&context, request, &response), address()));
  return std::vector<std::string>(response.jobs().begin(),
                                  response.jobs().end());
}

void SilenceRpcLog() { RedirectGrpcLog(GrpcLog::kSilent); }

}  // namespace lockstep
