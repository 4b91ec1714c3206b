#include "server/metrics/rpc_metrics.h"

#include <google/protobuf/descriptor.h>

#include "common/pki/authorisation.h"
#include "server/metrics/metric_families.h"

namespace lockstep::server {
namespace {

constexpr char kUnknown[] = "unknown";

std::string TypeOf(const google::protobuf::MethodDescriptor& method) {
  if (method.client_streaming()) {
    return method.server_streaming() ? "bidi_stream" : "client_stream";
  }
  return method.server_streaming() ? "server_stream" : "unary";
}

// The names of grpc-go's codes.Code.
std::string GrpcCodeName(StatusCode code) {
  static constexpr const char* kNames[] = {"OK",
                                           "Canceled",
                                           "Unknown",
                                           "InvalidArgument",
                                           "DeadlineExceeded",
                                           "NotFound",
                                           "AlreadyExists",
                                           "PermissionDenied",
                                           "ResourceExhausted",
                                           "FailedPrecondition",
                                           "Aborted",
                                           "OutOfRange",
                                           "Unimplemented",
                                           "Internal",
                                           "Unavailable",
                                           "DataLoss",
                                           "Unauthenticated"};
  const auto number = static_cast<size_t>(code);
  return number < std::size(kNames) ? kNames[number] : "Unknown";
}

}  // namespace

RpcMetrics::RpcMetrics() {
  const auto add = [this](const std::string& path) -> Method& {
    Method& method = methods_[path];
    MutexLock lock(&method.mu);
    method.handled[StatusCode::kOk] = 0;
    return method;
  };
  for (const auto* service : pki::LockstepServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const auto& descriptor = *service->method(i);
      Method& method =
          add("/" + service->full_name() + "/" + descriptor.name());
      method.type = TypeOf(descriptor);
      method.service = service->full_name();
      method.name = descriptor.name();
    }
  }
  Method& method = add(kUnknown);
  method.type = method.service = method.name = kUnknown;
}

RpcMetrics::Method* RpcMetrics::Find(std::string_view method) {
  const auto found = methods_.find(method);
  // gRPC's own health and reflection are included.
  return found == methods_.end() ? &methods_.find(kUnknown)->second
                                 : &found->second;
}

void RpcMetrics::OnStarted(std::string_view method) {
  Method* const found = Find(method);
  MutexLock lock(&found->mu);
  ++found->started;
}

void RpcMetrics::OnHandled(std::string_view method, StatusCode code,
                           Duration took) {
  Method* const found = Find(method);
  MutexLock lock(&found->mu);
  ++found->handled[code];
  found->seconds.Observe(ToSeconds(took));
}

std::vector<prometheus::MetricFamily> RpcMetrics::Collect() const {
  MetricFamilies out;
  for (const auto& [path, method] : methods_) {
    const MetricLabels labels = {{"grpc_type", method.type},
                                 {"grpc_service", method.service},
                                 {"grpc_method", method.name}};
    MutexLock lock(&method.mu);
    out.Counter("grpc_server_started_total", "Started calls.",
                static_cast<double>(method.started), labels);
    for (const auto& [code, count] : method.handled) {
      MetricLabels with_code = labels;
      with_code.push_back({"grpc_code", GrpcCodeName(code)});
      out.Counter("grpc_server_handled_total",
                  "Ended calls by code, rejected ones included.",
                  static_cast<double>(count), std::move(with_code));
    }
    if (method.type == "unary") {
      out.AddHistogram("grpc_server_handling_seconds",
                       "Time that calls spent in their handlers.",
                       method.seconds, labels);
    }
  }
  return out.Take();
}

}  // namespace lockstep::server
