// Any method by its path, with any bytes as its request.
#ifndef LOCKSTEP_TESTS_SECURITY_RAW_CALL_H_
#define LOCKSTEP_TESTS_SECURITY_RAW_CALL_H_

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

struct RawAnswer {
  Status status;
  // How many messages came back.
  int responses = 0;
  // Their bytes, one after the other.
  std::string bytes;

  // The call was let in: it was answered, or failed for a reason of its own.
  bool Admitted() const;
};

// Sends `requests` one after the other and half-closes; reads until the call
// ends, or, where `stop_early`, until the first answer, and then cancels it.
// `patience` is the call's deadline.
RawAnswer Call(const std::shared_ptr<grpc::Channel>& channel,
               const std::string& method,
               const std::vector<std::string>& requests, bool stop_early = true,
               Duration patience = std::chrono::seconds(20));

// The memory of this process, of which the server is a part.
int64_t ResidentBytes();

// "/lockstep.v1.JobService/GetJob".
std::string PathOf(const google::protobuf::MethodDescriptor& method);
// Of all services.
std::vector<const google::protobuf::MethodDescriptor*> AllMethods();

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SECURITY_RAW_CALL_H_
