// A job file: YAML in the words of the protobuf JSON mapping of JobSpec. Pure.
//
//   name: fashion
//   kind: native
//   roles:
//   - {type: chief, count: 1, resources: {cpus: 1}}
//   - {type: worker, count: 1, resources: {cpus: 1, memoryBytes: 2GiB}}
//   argv: [lockstep-train, --train, /data/fashion]
//   maxRunningTime: 2h
//
// Beyond that mapping: enum values may be short and in any case ("chief"),
// sizes and durations as in parse.h, numbers and booleans where a text is
// wanted (environment: {EPOCHS: 3}), and `env` for `environment`.
#ifndef LOCKSTEP_CLIENT_CLI_JOB_FILE_H_
#define LOCKSTEP_CLIENT_CLI_JOB_FILE_H_

#include <string>

#include "common/base/status.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep {

// InvalidArgument: "SOURCE:LINE:COLUMN: what"; of an unknown field with the
// nearest known name.
StatusOr<v1::JobSpec> ParseJobFile(const std::string& text,
                                   const std::string& source);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_JOB_FILE_H_
