// Every text of a training job is short and clean enough to stand in an error,
// a log line or a table; and what is no training at all. Parts of Translate.
// Pure.
#ifndef LOCKSTEP_COMMON_TRAINING_TEXTS_H_
#define LOCKSTEP_COMMON_TRAINING_TEXTS_H_

#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep {

// Not of arguments and variables, which may hold what they like. Errors do not
// repeat what they refuse.
Status CheckTexts(const TrainingJob& job);

// Tuning and the search of architectures. A client asks before it sends the
// job: the message has no place for them.
Status RefuseSearches(const TrainingInput& input);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TEXTS_H_
