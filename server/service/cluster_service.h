// ClusterService of proto/lockstep/v1/cluster.proto: convert, call, convert.
#ifndef LOCKSTEP_SERVER_SERVICE_CLUSTER_SERVICE_H_
#define LOCKSTEP_SERVER_SERVICE_CLUSTER_SERVICE_H_

#include "lockstep/v1/cluster.grpc.pb.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {

class ClusterService final : public v1::ClusterService::Service {
 public:
  explicit ClusterService(Coordinator* coordinator)
      : coordinator_(coordinator) {}

  grpc::Status ListNodes(grpc::ServerContext* context,
                         const v1::ListNodesRequest* request,
                         v1::ListNodesResponse* response) override;
  grpc::Status GetNode(grpc::ServerContext* context,
                       const v1::GetNodeRequest* request,
                       v1::Node* response) override;

  grpc::Status DrainNode(grpc::ServerContext* context,
                         const v1::DrainNodeRequest* request,
                         v1::Node* response) override;
  grpc::Status UndrainNode(grpc::ServerContext* context,
                           const v1::UndrainNodeRequest* request,
                           v1::Node* response) override;
  grpc::Status ForgetNode(grpc::ServerContext* context,
                          const v1::ForgetNodeRequest* request,
                          v1::ForgetNodeResponse* response) override;

 private:
  Coordinator* const coordinator_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_CLUSTER_SERVICE_H_
