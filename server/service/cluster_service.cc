#include "server/service/cluster_service.h"

#include "common/model/names.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/field_checker.h"
#include "common/wire/value_wire.h"
#include "server/query/page.h"
#include "server/service/messages.h"
#include "server/service/request.h"

namespace lockstep::server {
namespace {

constexpr size_t kMaxReason = 1024;
// A longer grace is an error: drain later instead.
constexpr Duration kMaxGrace = std::chrono::hours(24 * 7);

Status CheckName(const std::string& name) {
  if (IsNodeName(name)) return OkStatus();
  return InvalidArgument(
      "name: must be a node's name ([a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?)");
}

StatusOr<Drain> ParseDrain(const v1::DrainNodeRequest& request) {
  FieldChecker check("");
  Drain drain;
  check.Text("reason", request.reason(), kMaxReason);
  if (request.has_grace()) {
    LOCKSTEP_ASSIGN_OR_RETURN(drain.grace, FromProto(request.grace(), "grace"));
    check.Require(*drain.grace <= kMaxGrace, "grace",
                  "must be at most " + FormatDuration(kMaxGrace));
  }
  if (!check.ok()) return check.status();
  drain.reason = request.reason();
  return drain;
}

std::string Encode(const NodeSnapshot& snapshot) {
  return ToMessage(snapshot).SerializeAsString();
}

}  // namespace

grpc::Status ClusterService::DoListNodes(grpc::ServerContextBase*,
                                         const v1::ListNodesRequest* request,
                                         v1::ListNodesResponse* response) {
  const std::vector<NodeSnapshot> nodes = queries_->ListNodes();
  std::vector<std::string> names;
  for (const NodeSnapshot& node : nodes) names.push_back(node.member.info.name);
  auto page = CutPage(names, request->page_size(), request->page_token());
  if (!page.ok()) return ToGrpc(page.status());
  FillPage(
      names, [&](size_t i) { return ToMessage(nodes[i]); }, &*page,
      response->mutable_nodes());
  response->set_next_page_token(page->next_token);
  return grpc::Status::OK;
}

grpc::Status ClusterService::DoGetNode(grpc::ServerContextBase*,
                                       const v1::GetNodeRequest* request,
                                       v1::Node* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto node = queries_->GetNode(request->name());
  if (!node.ok()) return ToGrpc(node.status());
  *response = ToMessage(*node);
  return grpc::Status::OK;
}

grpc::Status ClusterService::DoDrainNode(grpc::ServerContextBase* context,
                                         const v1::DrainNodeRequest* request,
                                         v1::Node* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  auto drain = ParseDrain(*request);
  if (!drain.ok()) return ToGrpc(drain.status());
  const auto key = KeyOf(*context, *request, "DrainNode");
  if (!key.ok()) return ToGrpc(key.status());
  drain->requester = OwnerName(CallerOf(*context));
  return Reply(
      commands_->DrainNode(*key, request->name(), *std::move(drain), Encode),
      response);
}

grpc::Status ClusterService::DoUndrainNode(
    grpc::ServerContextBase* context, const v1::UndrainNodeRequest* request,
    v1::Node* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "UndrainNode");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(commands_->UndrainNode(
                   *key, request->name(),
                   {request->gpus().begin(), request->gpus().end()}, Encode),
               response);
}

grpc::Status ClusterService::DoApproveNode(
    grpc::ServerContextBase* context, const v1::ApproveNodeRequest* request,
    v1::Node* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "ApproveNode");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(commands_->ApproveNode(*key, request->name(), Encode), response);
}

grpc::Status ClusterService::DoForgetNode(grpc::ServerContextBase* context,
                                          const v1::ForgetNodeRequest* request,
                                          v1::ForgetNodeResponse* response) {
  if (Status s = CheckName(request->name()); !s.ok()) return ToGrpc(s);
  const auto key = KeyOf(*context, *request, "ForgetNode");
  if (!key.ok()) return ToGrpc(key.status());
  return Reply(commands_->ForgetNode(*key, request->name(),
                                     [](const std::vector<JobName>& jobs) {
                                       v1::ForgetNodeResponse answer;
                                       for (const JobName& job : jobs)
                                         answer.add_jobs(job);
                                       return answer.SerializeAsString();
                                     }),
               response);
}

}  // namespace lockstep::server
