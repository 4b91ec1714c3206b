// What a shim is told to start: as it is, and with length and checksum right.
#include "worker/task/shim_spec.h"

#include "tests/fuzz/fuzz.h"

namespace lockstep::worker {
namespace {

void CheckShimSpec(std::string_view bytes) {
  task::ShimSpec record;
  std::string error;
  if (!task::DecodeShimSpec(bytes, &record, &error)) {
    fuzz::Require(!error.empty(), "a refusal says why");
    return;
  }
  fuzz::Require(task::CheckShimSpec(record, &error), "it was checked");
  const std::string encoded = task::EncodeShimSpec(record);
  task::ShimSpec again;
  fuzz::Require(task::DecodeShimSpec(encoded, &again, &error) &&
                    task::EncodeShimSpec(again) == encoded,
                "it is read as written");
}

}  // namespace
}  // namespace lockstep::worker

LOCKSTEP_FUZZ_TARGET(shim_spec)(const uint8_t* data, size_t size) {
  const std::string_view bytes = lockstep::fuzz::View(data, size);
  lockstep::worker::CheckShimSpec(bytes);
  lockstep::worker::CheckShimSpec(lockstep::fuzz::FixEnvelope(bytes));
  return 0;
}
