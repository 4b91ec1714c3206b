// The worker's stream to the coordinator.
//
// One stream at a time: Connect opens it with a Register as its first message
// and abandons the previous one. Nothing is retried here: the daemon reconnects
// with a new report. Safe from any thread; events come from threads of the
// transport, in order, and never during a method of this class.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_COORDINATOR_CLIENT_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_COORDINATOR_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "lockstep/v1/worker.pb.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace lockstep::worker::agent {

class CoordinatorClient {
 public:
  struct Events {
    // `stream` is what Connect returned.
    std::function<void(uint64_t stream, v1::CoordinatorMessage message)>
        message;
    // Called once for each stream, as its last event. OK: the coordinator
    // closed it.
    std::function<void(uint64_t stream, Status status)> closed;
  };

  virtual ~CoordinatorClient() = default;
  // `obeyed_epoch`: the highest followed epoch; 0: none.
  virtual uint64_t Connect(const v1::Register& first,
                           uint64_t obeyed_epoch) = 0;
  // Queues the message behind Register. Drops it if the stream has ended.
  virtual void Send(const v1::WorkerMessage& message) = 0;
  // Ends the stream; `closed` follows.
  virtual void Disconnect() = 0;
};

// Uses gRPC. `channel` has the target and the credentials
// (common/rpc/channel.h).
std::unique_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(
    std::shared_ptr<grpc::Channel> channel, CoordinatorClient::Events events);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_COORDINATOR_CLIENT_H_
