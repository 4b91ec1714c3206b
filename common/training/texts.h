// Every text of a training job is short and clean enough to stand in an error,
// a log line or a table. A part of Translate. Pure.
#ifndef LOCKSTEP_COMMON_TRAINING_TEXTS_H_
#define LOCKSTEP_COMMON_TRAINING_TEXTS_H_

#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep {

// Not of arguments and variables, which may hold what they like. Errors do not
// repeat what they refuse.
Status CheckTexts(const TrainingJob& job);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TEXTS_H_
