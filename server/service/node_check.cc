// ClusterService.CheckNode: checks of a node's GPUs for operators.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/model/names.h"
#include "common/wire/gpu_check_wire.h"
#include "server/service/cluster_service.h"
#include "server/service/request.h"
#include "server/stream/stream_reactor.h"

namespace lockstep::server {
namespace {

// What the coordinator answers, later. Thread-safe.
class Outcome {
 public:
  explicit Outcome(StreamPeer* peer) : peer_(peer) {}

  // The call no longer waits.
  void Leave() {
    MutexLock lock(&mu_);
    peer_ = nullptr;
  }
  void Set(StatusOr<std::vector<GpuCheck>> checks) {
    MutexLock lock(&mu_);
    checks_ = std::move(checks);
    if (peer_ != nullptr) peer_->Wake();
  }
  std::optional<StatusOr<std::vector<GpuCheck>>> Get() const {
    MutexLock lock(&mu_);
    return checks_;
  }

 private:
  mutable Mutex mu_;
  StreamPeer* peer_ ABSL_GUARDED_BY(mu_);
  std::optional<StatusOr<std::vector<GpuCheck>>> checks_ ABSL_GUARDED_BY(mu_);
};

class Checking final : public StreamSource<v1::CheckNodeResponse> {
 public:
  Checking(NodeCommands* commands, RequestKey key,
           const v1::CheckNodeRequest& request, StreamPeer* peer)
      : commands_(commands),
        key_(std::move(key)),
        name_(request.name()),
        gpus_(request.gpus().begin(), request.gpus().end()),
        outcome_(std::make_shared<Outcome>(peer)) {}
  ~Checking() override { outcome_->Leave(); }

  StreamStep Next(v1::CheckNodeResponse* message) override {
    if (!asked_) {
      asked_ = true;
      const Status begun = commands_->CheckGpus(
          key_, name_, gpus_,
          [outcome = outcome_](StatusOr<std::vector<GpuCheck>> checks) {
            outcome->Set(std::move(checks));
          });
      if (!begun.ok()) return StreamStep::End(begun);
    }
    const auto checks = outcome_->Get();
    if (!checks) return StreamStep::Sleep(std::nullopt);
    if (!checks->ok()) return StreamStep::End(checks->status());
    for (const GpuCheck& check : **checks) {
      *message->add_checks() = ToProto(check);
    }
    return StreamStep::End(OkStatus());
  }

 private:
  NodeCommands* const commands_;
  const RequestKey key_;
  const NodeName name_;
  const std::vector<int32_t> gpus_;
  const std::shared_ptr<Outcome> outcome_;
  bool asked_ = false;
};

}  // namespace

grpc::ServerUnaryReactor* ClusterService::CheckNode(
    grpc::CallbackServerContext* context, const v1::CheckNodeRequest* request,
    v1::CheckNodeResponse* response) {
  if (!IsNodeName(request->name())) {
    return Answer(context, ToGrpc(InvalidArgument(
                               "name: must be a node's name "
                               "([a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?)")));
  }
  auto key = KeyOf(*context, *request, "CheckNode");
  if (!key.ok()) return Answer(context, ToGrpc(key.status()));
  return StartCall<WaitingReactor<v1::CheckNodeResponse>>(
      context, pools_,
      [&](StreamPeer* peer) {
        return std::make_unique<Checking>(commands_, *std::move(key), *request,
                                          peer);
      },
      response);
}

}  // namespace lockstep::server
