// ClusterService of proto/lockstep/v1/cluster.proto. Converts messages and
// calls the coordinator.
#ifndef LOCKSTEP_SERVER_SERVICE_CLUSTER_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_CLUSTER_SERVICE_H_

#include "common/rpc/call_pools.h"
#include "lockstep/v1/cluster.grpc.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/node_commands.h"
#include "server/service/unary.h"

namespace lockstep::server {

class ClusterService final : public v1::ClusterService::CallbackService {
 public:
  // All outlive this object, and all but `pools` outlive `pools`.
  ClusterService(CallPools* pools, NodeCommands* commands,
                 const ClusterQueries* queries)
      : pools_(pools), commands_(commands), queries_(queries) {}

  // gRPC calls these on a thread of the caller's pool.
  grpc::ServerUnaryReactor* ListNodes(
      grpc::CallbackServerContext* context, const v1::ListNodesRequest* request,
      v1::ListNodesResponse* response) override {
    return Answer(context, DoListNodes(context, request, response));
  }
  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request,
                                    v1::Node* response) override {
    return Answer(context, DoGetNode(context, request, response));
  }
  grpc::ServerUnaryReactor* DrainNode(grpc::CallbackServerContext* context,
                                      const v1::DrainNodeRequest* request,
                                      v1::Node* response) override {
    return Answer(context, DoDrainNode(context, request, response));
  }
  grpc::ServerUnaryReactor* UndrainNode(grpc::CallbackServerContext* context,
                                        const v1::UndrainNodeRequest* request,
                                        v1::Node* response) override {
    return Answer(context, DoUndrainNode(context, request, response));
  }
  grpc::ServerUnaryReactor* ApproveNode(grpc::CallbackServerContext* context,
                                        const v1::ApproveNodeRequest* request,
                                        v1::Node* response) override {
    return Answer(context, DoApproveNode(context, request, response));
  }
  // Waits for the node's answer without a thread.
  grpc::ServerUnaryReactor* CheckNode(grpc::CallbackServerContext* context,
                                      const v1::CheckNodeRequest* request,
                                      v1::CheckNodeResponse* response) override;
  grpc::ServerUnaryReactor* ForgetNode(
      grpc::CallbackServerContext* context,
      const v1::ForgetNodeRequest* request,
      v1::ForgetNodeResponse* response) override {
    return Answer(context, DoForgetNode(context, request, response));
  }

 private:
  grpc::Status DoListNodes(grpc::ServerContextBase* context,
                           const v1::ListNodesRequest* request,
                           v1::ListNodesResponse* response);
  grpc::Status DoGetNode(grpc::ServerContextBase* context,
                         const v1::GetNodeRequest* request, v1::Node* response);
  grpc::Status DoDrainNode(grpc::ServerContextBase* context,
                           const v1::DrainNodeRequest* request,
                           v1::Node* response);
  grpc::Status DoUndrainNode(grpc::ServerContextBase* context,
                             const v1::UndrainNodeRequest* request,
                             v1::Node* response);
  grpc::Status DoApproveNode(grpc::ServerContextBase* context,
                             const v1::ApproveNodeRequest* request,
                             v1::Node* response);
  grpc::Status DoForgetNode(grpc::ServerContextBase* context,
                            const v1::ForgetNodeRequest* request,
                            v1::ForgetNodeResponse* response);

  CallPools* const pools_;
  NodeCommands* const commands_;
  const ClusterQueries* const queries_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_CLUSTER_SERVICE_H_
