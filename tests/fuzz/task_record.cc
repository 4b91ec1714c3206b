// What is known of a rank that was started: as it is, and with length and
// checksum right.
#include "worker/task/task_record.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void CheckTaskRecord(std::string_view bytes) {
  task::TaskRecord record;
  std::string error;
  if (!task::DecodeTaskRecord(bytes, &record, &error)) {
    fuzz::Require(!error.empty(), "a refusal says why");
    return;
  }
  const std::string encoded = task::EncodeTaskRecord(record);
  task::TaskRecord again;
  fuzz::Require(task::DecodeTaskRecord(encoded, &again, &error) &&
                    task::EncodeTaskRecord(again) == encoded,
                "it is read as written");
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(task_record)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::CheckTaskRecord(bytes);
  lockstep::worker::CheckTaskRecord(lockstep::fuzz::FixEnvelope(bytes));
  return 0;
}
