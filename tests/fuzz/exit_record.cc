// How a rank ended: as it is, and with length and checksum right.
#include "worker/task/exit_record.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void CheckExitRecord(std::string_view bytes) {
  task::ExitRecord record;
  std::string error;
  if (!task::DecodeExitRecord(bytes, &record, &error)) {
    fuzz::Require(!error.empty(), "a refusal says why");
    return;
  }
  (void)task::DescribeExit(record);
  const std::string encoded = task::EncodeExitRecord(record);
  task::ExitRecord again;
  fuzz::Require(task::DecodeExitRecord(encoded, &again, &error) &&
                    task::EncodeExitRecord(again) == encoded,
                "it is read as written");
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(exit_record)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::CheckExitRecord(bytes);
  lockstep::worker::CheckExitRecord(lockstep::fuzz::FixEnvelope(bytes));
  return 0;
}
