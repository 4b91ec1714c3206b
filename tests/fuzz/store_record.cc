// Rows of the coordinator's store, of a file that may be damaged or foreign.
#include "server/store/record.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  std::string_view bytes = fuzz::View(data, size);
  switch (fuzz::TakeChoice(&bytes) % 3) {
    case 0:
      if (const auto job = DecodeJob(bytes); job.ok()) {
        const std::string encoded = EncodeJob(*job);
        const auto again = DecodeJob(encoded);
        fuzz::Require(again.ok(), "a job that was read can be read again");
        (void)ToProto(*again);
      }
      break;
    case 1:
      if (const auto node = DecodeNode(bytes); node.ok()) {
        fuzz::Require(DecodeNode(EncodeNode(*node)).ok(),
                      "a node that was read can be read again");
      }
      break;
    default:
      if (const auto request = DecodeRequest(bytes); request.ok()) {
        fuzz::Require(DecodeRequest(EncodeRequest(*request)).ok(),
                      "a request that was read can be read again");
      }
  }
  return 0;
}
