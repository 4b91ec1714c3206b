// Audit lines in the log: one for each rejected call, and one with the answer
// for each call that changes state.
//
//   audit: user ann (submitter) from ipv4:10.0.0.7:41234 called
//     /lockstep.v1.JobService/CancelJob "mnist": OK
//   audit: refused worker host-b from ipv4:10.0.0.9:51234 ...
//
// Refusals are warnings, other lines information. A call that is rejected
// before its handler has no address in gRPC 1.51; its line has only the name.
#ifndef LOCKSTEP_COMMON_RPC_AUDIT_H_
#define LOCKSTEP_COMMON_RPC_AUDIT_H_

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace lockstep {

struct AuditRecord {
  // Describe(identity). Empty for an unknown caller.
  std::string who;
  // "ipv4:10.0.0.7:41234". Empty if unknown.
  std::string from;
  std::string method;
  // The job or node, or empty.
  std::string target;
  Status answer;
  // The number of calls that the record stands for. Its fields are those of the
  // last.
  int64_t count = 1;
};

// True if `status` denies the caller access.
bool IsRefusal(const Status& status);

// Returns the line without its level. Names come from outside, so control
// characters are replaced and long names are cut.
std::string AuditLine(const AuditRecord& record);
void Audit(const AuditRecord& record);

// Returns the request's field `name`, or the name in its `spec`. Of a session
// in a rank also the rank and the command.
std::string AuditTarget(const google::protobuf::Message& request);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_AUDIT_H_
