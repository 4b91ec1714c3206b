#include "common/rpc/status_conversion.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace lockstep {
namespace {

constexpr char kDomain[] = "lockstep";
constexpr size_t kMaxStatusMessage = 2048;

std::string CleanMessage(std::string_view text) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (clean.size() + std::max<size_t>(length, 1) > kMaxStatusMessage) {
      clean += "...";
      break;
    }
    if (length == 0) {
      clean += '?';
    } else {
      clean += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return clean;
}

std::string Details(StatusCode code, const std::string& message,
                    const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain(kDomain);
  google::rpc::Status status;
  status.set_code(static_cast<int>(code));
  status.set_message(message);
  status.add_details()->PackFrom(info);
  return status.SerializeAsString();
}

std::string ReasonIn(const std::string& details) {
  google::rpc::Status status;
  if (details.empty() || !status.ParseFromString(details)) return "";
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info) && info.domain() == kDomain) return info.reason();
  }
  return "";
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = CleanMessage(Message(status));
  const std::string reason = ReasonOf(status);
  return grpc::Status(
      static_cast<grpc::StatusCode>(status.code()), message,
      reason.empty() ? "" : Details(status.code(), message, reason));
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = status.error_code();
  const bool known =
      code > grpc::StatusCode::OK && code <= grpc::StatusCode::UNAUTHENTICATED;
  Status result(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                status.error_message());
  const std::string reason = ReasonIn(status.error_details());
  return reason.empty() ? result : WithReason(std::move(result), reason);
}

}  // namespace lockstep
