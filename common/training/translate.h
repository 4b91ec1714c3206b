// What a TrainingInput asks for, as a job of lockstep. Pure.
//
// Everything that AI Platform refuses is refused, and everything that lockstep
// cannot do: with the field's path, what was wrong and what would work.
// What is taken but has no effect here is said in a note.
#ifndef LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_
#define LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/job.h"
#include "common/training/site.h"
#include "common/training/training_input.h"

namespace lockstep {

struct TrainingPlan {
  // Complete but for `packages`, which a TrainingInput only names, and
  // `tf_config_job`, which repeats it. Names, labels and variables are checked
  // where every job's are.
  JobSpec spec;
  // "trainingInput.region: us-central1 is taken by the default pool, all
  // nodes".
  std::vector<std::string> notes;
  // Those of `notes` that belong to the job's history.
  std::vector<std::string> events;
};

// As AI Platform has it: 7 days.
inline constexpr Duration kDefaultMaxRunningTime = std::chrono::hours(7 * 24);

// Whether `path` names a service instead of a file, as in gs://bucket.
bool HasScheme(const std::string& path);

StatusOr<TrainingPlan> Translate(const TrainingJob& job, const Site& site);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_
