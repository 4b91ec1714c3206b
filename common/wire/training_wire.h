// A job in AI Platform's words: proto/lockstep/v1/training.proto and the value
// of common/training, and back. Pure; safe from any thread.
//
// Only what a message may hold at all is checked here (sizes, no NUL,
// durations that are some); what fields mean is checked by Translate.
#ifndef LOCKSTEP_COMMON_WIRE_TRAINING_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_TRAINING_WIRE_H_

#include "common/base/status.h"
#include "common/training/training_input.h"
#include "lockstep/v1/training.pb.h"

namespace lockstep {

v1::TrainingJob ToProto(const TrainingJob& value);
// Of a message that another version wrote: InvalidArgument names a field, by
// its number, that is not known here and so would have no effect.
Status CheckKnown(const v1::TrainingJob& value);

// Field paths are AI Platform's: "trainingInput.workerCount".
StatusOr<TrainingJob> FromProto(const v1::TrainingJob& value);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_TRAINING_WIRE_H_
