// A job file of a user, and what the coordinator makes of it.
#include "client/cli/job_file.h"

#include "common/wire/job_wire.h"
#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(job_file)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace cli;
  const auto proto =
      ParseJobFile(std::string(fuzz::View(data, size)), "job.yaml");
  if (!proto.ok()) {
    fuzz::Require(proto.status().code() == StatusCode::kInvalidArgument,
                  "a bad file is INVALID_ARGUMENT");
    return 0;
  }
  const auto spec = FromProto(*proto);
  if (!spec.ok()) return 0;
  const auto again = FromProto(ToProto(*spec));
  fuzz::Require(again.ok() && *again == *spec, "a spec survives the wire");
  return 0;
}
