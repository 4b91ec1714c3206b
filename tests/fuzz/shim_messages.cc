// What is said on a shim's socket, both ways.
#include "worker/task/shim_messages.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void CheckShimMessage(std::string_view bytes) {
  std::string error;
  task::ShimRequest request;
  if (task::DecodeShimRequest(bytes, &request, &error)) {
    const std::string encoded = task::EncodeShimRequest(request);
    fuzz::Require(task::DecodeShimRequest(encoded, &request, &error) &&
                      task::EncodeShimRequest(request) == encoded,
                  "a request is read as written");
  }
  task::ShimReply reply;
  if (task::DecodeShimReply(bytes, &reply, &error)) {
    const std::string encoded = task::EncodeShimReply(reply);
    fuzz::Require(task::DecodeShimReply(encoded, &reply, &error) &&
                      task::EncodeShimReply(reply) == encoded,
                  "a reply is read as written");
  }
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(shim_messages)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::CheckShimMessage(bytes);
  lockstep::worker::CheckShimMessage(lockstep::fuzz::FixEnvelope(bytes));
  return 0;
}
