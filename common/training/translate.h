// Translates a TrainingInput to a lockstep job. Pure.
//
// It rejects everything that AI Platform rejects and everything that lockstep
// cannot do, with the field's path, the fault and the remedy. Notes list the
// fields that are accepted but have no effect.
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
  // Complete except for `packages`, which a TrainingInput only names, and
  // `tf_config_job`, which repeats it. Names, labels and variables are checked
  // later, as for every job.
  JobSpec spec;
  // "trainingInput.region: us-central1 is taken by the default pool, all
  // nodes".
  std::vector<std::string> notes;
  // The `notes` that belong in the job's history.
  std::vector<std::string> events;
};

// AI Platform's default: 7 days.
inline constexpr Duration kDefaultMaxRunningTime = std::chrono::hours(7 * 24);

// Whether `path` names a service instead of a file, as in gs://bucket.
bool HasScheme(const std::string& path);

StatusOr<TrainingPlan> Translate(const TrainingJob& job, const Site& site);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_
