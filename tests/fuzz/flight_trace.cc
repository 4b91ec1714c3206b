// Traces of PyTorch's flight recorder, from a file of a rank's user.
#include "worker/evidence/flight_trace.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(flight_trace)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto records =
      worker::evidence::ParseFlightTrace(fuzz::View(data, size));
  if (!records.ok()) return 0;
  fuzz::Require(records->size() <= kMaxFlightRecords, "records are bounded");
  for (const FlightRecord& record : *records) {
    fuzz::Require(record.sequence > 0 && !record.operation.empty() &&
                      record.operation.size() <= kMaxEvidenceName &&
                      record.group.size() <= kMaxEvidenceName &&
                      record.state.size() <= kMaxEvidenceName,
                  "a record is bounded");
  }
  return 0;
}
