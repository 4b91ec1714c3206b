#include "common/base/status.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/cord.h"

namespace lockstep {
namespace {

constexpr char kReasonUrl[] = "lockstep/reason";

StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ESRCH:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    case ENOTDIR:
    case EISDIR:
    case ENOTEMPTY:
    case EADDRINUSE:
      return StatusCode::kFailedPrecondition;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EAGAIN:
      return StatusCode::kUnavailable;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Status FormatError(StatusCode code, fmt::string_view format,
                   fmt::format_args args) {
  return Status(code, fmt::vformat(format, args));
}

Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  Status result(status.code(), fmt::format("{}: {}", context, Message(status)));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

Status ErrnoStatus(int error, std::string_view what) {
  return Status(CodeOfErrno(error),
                fmt::format("{}: {}", what, std::strerror(error)));
}

Status WithReason(Status status, std::string_view reason) {
  status.SetPayload(
      kReasonUrl, absl::Cord(absl::string_view(reason.data(), reason.size())));
  return status;
}

std::string ReasonOf(const Status& status) {
  auto payload = status.GetPayload(kReasonUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

std::string_view CodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
    default:
      return "UNKNOWN";
  }
}

}  // namespace lockstep
