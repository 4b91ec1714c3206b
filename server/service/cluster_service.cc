#include "server/service/cluster_service.h"

#include "common/rpc/status_conversion.h"
#include "server/service/messages.h"
#include "server/service/page.h"

namespace lockstep {

grpc::Status ClusterService::ListNodes(grpc::ServerContext*,
                                       const v1::ListNodesRequest* request,
                                       v1::ListNodesResponse* response) {
  const std::vector<NodeSnapshot> nodes = coordinator_->ListNodes();
  std::vector<std::string> names;
  for (const NodeSnapshot& node : nodes) names.push_back(node.member.info.name);
  const auto page = CutPage(names, request->page_size(), request->page_token());
  if (!page.ok()) return ToGrpc(page.status());
  for (size_t i = page->begin; i < page->end; ++i) {
    *response->add_nodes() = ToMessage(nodes[i]);
  }
  response->set_next_page_token(page->next_token);
  return grpc::Status::OK;
}

grpc::Status ClusterService::GetNode(grpc::ServerContext*,
                                     const v1::GetNodeRequest* request,
                                     v1::Node* response) {
  const auto node = coordinator_->GetNode(request->name());
  if (!node.ok()) return ToGrpc(node.status());
  *response = ToMessage(*node);
  return grpc::Status::OK;
}

}  // namespace lockstep
