// Errors are absl::Status, with a text made by fmt and a reason code for
// programs.
//
// Debian's Abseil has its own string_view, so a Status does not mix with
// std::string_view. Only this file converts between them. A message is one
// sentence: what failed, where, and what to do.
#ifndef LOCKSTEP_COMMON_BASE_STATUS_H_
#define LOCKSTEP_COMMON_BASE_STATUS_H_

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

using absl::OkStatus;
using absl::Status;
using absl::StatusCode;
using absl::StatusOr;

// Returns the text of `status` without its code.
inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// Formats the text. Not a template: there are thousands of errors.
Status FormatError(StatusCode code, fmt::string_view format,
                   fmt::format_args args);

template <typename... Args>
Status Error(StatusCode code, fmt::format_string<Args...> format,
             Args&&... args) {
  return FormatError(code, format, fmt::make_format_args(args...));
}

// One function per code in use, such as NotFound("no job {}", name).
#define LOCKSTEP_DEFINE_ERROR(Name, Code)                           \
  template <typename... Args>                                       \
  Status Name(fmt::format_string<Args...> format, Args&&... args) { \
    return FormatError(StatusCode::Code, format,                    \
                       fmt::make_format_args(args...));             \
  }
LOCKSTEP_DEFINE_ERROR(InvalidArgument, kInvalidArgument)
LOCKSTEP_DEFINE_ERROR(NotFound, kNotFound)
LOCKSTEP_DEFINE_ERROR(AlreadyExists, kAlreadyExists)
LOCKSTEP_DEFINE_ERROR(FailedPrecondition, kFailedPrecondition)
LOCKSTEP_DEFINE_ERROR(ResourceExhausted, kResourceExhausted)
LOCKSTEP_DEFINE_ERROR(PermissionDenied, kPermissionDenied)
LOCKSTEP_DEFINE_ERROR(Unauthenticated, kUnauthenticated)
LOCKSTEP_DEFINE_ERROR(Aborted, kAborted)
LOCKSTEP_DEFINE_ERROR(OutOfRange, kOutOfRange)
LOCKSTEP_DEFINE_ERROR(Unavailable, kUnavailable)
LOCKSTEP_DEFINE_ERROR(DeadlineExceeded, kDeadlineExceeded)
LOCKSTEP_DEFINE_ERROR(Cancelled, kCancelled)
LOCKSTEP_DEFINE_ERROR(DataLoss, kDataLoss)
LOCKSTEP_DEFINE_ERROR(Unimplemented, kUnimplemented)
LOCKSTEP_DEFINE_ERROR(Internal, kInternal)
#undef LOCKSTEP_DEFINE_ERROR

// Puts `context` before the text of `status`: "reading /x: no such file". Code
// and reason stay.
Status Annotate(const Status& status, std::string_view context);

// Converts errno: ENOENT is NotFound, EACCES PermissionDenied, ENOSPC
// ResourceExhausted, EEXIST AlreadyExists, others Unavailable or Internal.
// `what` names the operation and the path.
Status ErrnoStatus(int error, std::string_view what);

// Adds a machine-readable reason such as NO_CAPACITY, in upper case with
// underscores. It travels as google.rpc.ErrorInfo.reason.
Status WithReason(Status status, std::string_view reason);
// Returns "" if no reason is set.
std::string ReasonOf(const Status& status);

// The canonical upper-case name: "INVALID_ARGUMENT".
std::string_view CodeName(StatusCode code);

}  // namespace lockstep

#define LOCKSTEP_RETURN_IF_ERROR(expr)                   \
  do {                                                   \
    ::lockstep::Status lockstep_status_ = (expr);        \
    if (!lockstep_status_.ok()) return lockstep_status_; \
  } while (false)

#define LOCKSTEP_CONCAT_(a, b) a##b
#define LOCKSTEP_CONCAT(a, b) LOCKSTEP_CONCAT_(a, b)
#define LOCKSTEP_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return std::move(tmp).status();   \
  lhs = *std::move(tmp)
// LOCKSTEP_ASSIGN_OR_RETURN(auto x, MakeX());
#define LOCKSTEP_ASSIGN_OR_RETURN(lhs, expr) \
  LOCKSTEP_ASSIGN_OR_RETURN_(LOCKSTEP_CONCAT(lockstep_or_, __LINE__), lhs, expr)

#endif  // LOCKSTEP_COMMON_BASE_STATUS_H_
