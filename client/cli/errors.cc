#include "client/cli/errors.h"

#include "client/cli/cli.h"

namespace lockstep::cli {

int ExitCodeOf(const Status& status) {
  if (ReasonOf(status) == "NEVER_FITS") return kExitUnschedulable;
  switch (status.code()) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kNotFound:
      return kExitNotFound;
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated:
      return kExitDenied;
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    case StatusCode::kCancelled:  // Ctrl-C; a server's cancel has another code.
      return kExitInterrupted;
    default:
      return kExitError;
  }
}

std::string ErrorLine(const Status& status) {
  std::string text = "lockstep: ";
  const std::string message = Message(status);
  text += message.empty() ? std::string(CodeName(status.code())) : message;
  const std::string reason = ReasonOf(status);
  if (!reason.empty()) text += " [" + reason + "]";
  return text;
}

}  // namespace lockstep::cli
