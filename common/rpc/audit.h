// The lines of the log that say who did what: one for each call that was
// refused, and one for each that changes something, with its answer.
//
//   audit: user ann (submitter) from ipv4:10.0.0.7:41234 called
//     /lockstep.v1.JobService/CancelJob "mnist": OK
//   audit: refused worker host-b from ipv4:10.0.0.9:51234 ...
//
// Refusals are warnings, the others information. A call that is refused before
// its handler has no address in gRPC 1.51: the line has the name only.
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
  // Describe(identity); empty: nobody that we know.
  std::string who;
  // "ipv4:10.0.0.7:41234"; empty: not known.
  std::string from;
  std::string method;
  // Which job or node; empty: none.
  std::string target;
  Status answer;
  // How many calls with this answer the record stands for; it is of the last.
  int64_t count = 1;
};

// Whether `status` says that somebody tried what they may not.
bool IsRefusal(const Status& status);

// The line, without its level. Names come from outside: control characters
// are replaced and long ones are cut.
std::string AuditLine(const AuditRecord& record);
void Audit(const AuditRecord& record);

// What a request is about: its field `name`, or the name in its `spec`.
std::string AuditTarget(const google::protobuf::Message& request);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_AUDIT_H_
