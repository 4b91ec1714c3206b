// The file of `jobs submit training --config`: AI Platform's Job in YAML or
// JSON, usually with trainingInput only. Pure.
//
//   trainingInput:
//     scaleTier: CUSTOM
//     masterType: n1-standard-8
//     masterConfig: {imageUri: registry/trainer:1}
//   labels: {team: vision}
//   lockstep:                  # what that interface has no name for
//     env: {TF_USE_LEGACY_KERAS: 1}
//     ranksPerTask: gpu        # or a number
//     restart: {budget: 3}
//     runtime: tf-2.21
//     images: {gcr.io/my-project: registry.local}
#ifndef LOCKSTEP_COMMON_TRAINING_TRAINING_FILE_H_
#define LOCKSTEP_COMMON_TRAINING_TRAINING_FILE_H_

#include <string>

#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep {

// InvalidArgument: "SOURCE:LINE:COLUMN: ...". For an unknown field it suggests
// the nearest known name. Translate checks the relations between fields.
StatusOr<TrainingJob> ParseTrainingFile(const std::string& text,
                                        const std::string& source);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TRAINING_FILE_H_
