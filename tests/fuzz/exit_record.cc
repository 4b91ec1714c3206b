// How a rank ended: as it is, and with length and checksum right.
#include "worker/task/exit_record.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void Decode(std::string_view bytes) {
  task::ExitRecord record;
  std::string error;
  if (!task::DecodeExitRecord(bytes, &record, &error)) {
    fuzz::Require(!error.empty(), "a refusal says why");
    return;
  }
  (void)task::ExitCode(record);
  (void)task::DescribeExit(record);
  const std::string encoded = task::EncodeExitRecord(record);
  task::ExitRecord again;
  fuzz::Require(task::DecodeExitRecord(encoded, &again, &error) &&
                    task::EncodeExitRecord(again) == encoded,
                "it is read as written");
}

}  // namespace
}  // namespace lockstep::worker

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::Decode(bytes);
  lockstep::worker::Decode(lockstep::fuzz::FixEnvelope(bytes));
  return 0;
}
