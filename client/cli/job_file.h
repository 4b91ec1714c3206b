// A job file: YAML with the names of JobSpec's protobuf JSON mapping. Pure.
//
//   name: fashion
//   kind: native
//   roles:
//   - {type: chief, count: 1, resources: {cpus: 1}}
//   - {type: worker, count: 1, resources: {cpus: 1, memoryBytes: 2GiB}}
//   argv: [lockstep-train, --train, /data/fashion]
//   maxRunningTime: 2h
//
// In addition to that mapping: enum values may be short and in any case
// ("chief"), sizes and durations have the forms of parse.h, numbers and
// booleans are accepted as texts (environment: {EPOCHS: 3}), and `env` means
// `environment`.
#ifndef LOCKSTEP_CLIENT_CLI_JOB_FILE_H_
#define LOCKSTEP_CLIENT_CLI_JOB_FILE_H_

#include <string>

#include "common/base/status.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep::cli {

// InvalidArgument: "SOURCE:LINE:COLUMN: ...". For an unknown field it names the
// nearest known one.
StatusOr<v1::JobSpec> ParseJobFile(const std::string& text,
                                   const std::string& source);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_JOB_FILE_H_
