// grpc_server_* of one gRPC server, named as go-grpc-prometheus names them.
#ifndef LOCKSTEP_SERVER_METRICS_RPC_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_RPC_METRICS_H_

#include <prometheus/collectable.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/histogram.h"
#include "common/base/mutex.h"
#include "common/rpc/call_observer.h"

namespace lockstep {

// Thread-safe. Every method of lockstep.v1 is there from the start, with the
// code OK; another code from when it is first answered. Streams, which last as
// long as their clients wish, have no time.
class RpcMetrics final : public CallObserver, public prometheus::Collectable {
 public:
  RpcMetrics();

  void OnStarted(std::string_view method) override;
  void OnHandled(std::string_view method, StatusCode code,
                 Duration took) override;
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Method {
    std::string type;  // "unary", "server_stream", "client_stream", ...
    std::string service;
    std::string name;

    mutable Mutex mu;
    int64_t started ABSL_GUARDED_BY(mu) = 0;
    std::map<StatusCode, int64_t> handled ABSL_GUARDED_BY(mu);
    Histogram seconds ABSL_GUARDED_BY(mu){kShortBuckets};
  };

  // The one of "unknown" where there is no such method.
  Method* Find(std::string_view method);

  // By gRPC's path; never changed after the constructor.
  std::map<std::string, Method, std::less<>> methods_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_METRICS_RPC_METRICS_H_
