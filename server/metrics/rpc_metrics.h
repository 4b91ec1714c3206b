// grpc_server_* of one gRPC server, with the names of go-grpc-prometheus.
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

namespace lockstep::server {

// Thread-safe. Every method of lockstep.v1 has a series with code OK from the
// start; other codes appear with their first answer. Streams have no latency,
// because clients choose their duration.
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

  // Returns the entry "unknown" if there is no such method.
  Method* Find(std::string_view method);

  // By gRPC's path; constant after construction.
  std::map<std::string, Method, std::less<>> methods_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_RPC_METRICS_H_
