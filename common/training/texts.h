// Checks that every text of a training job is short and clean enough for an
// error, a log line or a table, and rejects features that are not training.
// Parts of Translate. Pure.
#ifndef LOCKSTEP_COMMON_TRAINING_TEXTS_H_
#define LOCKSTEP_COMMON_TRAINING_TEXTS_H_

#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep {

// Does not check arguments and variables, which may hold any text. Errors do
// not repeat the rejected text.
Status CheckTexts(const TrainingJob& job);

// Rejects hyperparameter tuning and architecture search. A client calls it
// before it sends the job, because the message has no field for them.
Status RefuseSearches(const TrainingInput& input);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TEXTS_H_
