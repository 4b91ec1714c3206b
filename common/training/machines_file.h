// The site's table of machines as a YAML file:
//
//   accelerators:
//     NVIDIA_TESLA_T4: {model: Tesla T4, mlUnits: 0.7143, peakTflops: 65}
//   machines:
//     n1-standard-8:
//       cpus: 8
//       memory: 30GiB
//       request: {cpus: 2, memory: 4GiB}
//       attachable: {NVIDIA_TESLA_T4: [1, 2, 4]}
//       mlUnits: 0.7755
//     dgx:
//       cpus: 40
//       memory: 512GiB
//       accelerator: {count: 8, type: NVIDIA_TESLA_V100}
//   tiers:
//     STANDARD_1: {masterType: n1-standard-8, workerType: n1-standard-8,
//                  workerCount: 2, masterAccelerator: {count: 1, type: ...}}
//   defaults: true
//
// With `defaults: true` the shipped table is included: the file overrides
// single fields of a shipped machine or accelerator (`n1-standard-8: {request:
// {cpus: 1}}`) and replaces whole tiers. Otherwise only the file's entries
// exist. The default request is the nominal size.
#ifndef LOCKSTEP_COMMON_TRAINING_MACHINES_FILE_H_
#define LOCKSTEP_COMMON_TRAINING_MACHINES_FILE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/machines.h"
#include "common/yaml/yaml_reader.h"

namespace lockstep {

// InvalidArgument: "SOURCE:LINE:COLUMN: machines.x.cpus: ...". An undefined
// name: "SOURCE: tiers.BASIC.masterType: ...".
StatusOr<MachineTable> ParseMachinesFile(const std::string& text,
                                         const std::string& source);

// The same for a document with more keys; `others` reads keys outside the
// table.
StatusOr<MachineTable> ReadMachineTable(const YamlValue& root,
                                        const std::string& source,
                                        const std::vector<YamlField>& others);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_MACHINES_FILE_H_
