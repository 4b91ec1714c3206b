// What a TrainingInput asks for, as a job of lockstep. Pure.
//
// Everything that AI Platform refuses is refused, and everything that lockstep
// cannot do: with the field's path, what was wrong and what would work.
// What is taken but has no effect here is said in a note.
#ifndef LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_
#define LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/job.h"
#include "common/training/machines.h"
#include "common/training/training_input.h"

namespace lockstep {

// What a JobSpec has no field for yet, of one of its roles.
struct TrainingRole {
  TaskType type = TaskType::kChief;
  int32_t count = 0;
  // The type and both of its sizes, and the price of one.
  Machine machine;
  // The container image, prefixes replaced; empty for a Python package.
  std::string image;
  // Replaces the image's ENTRYPOINT and CMD. With an empty command `args`
  // replace CMD alone, unless they are empty too.
  std::vector<std::string> command;
  std::vector<std::string> args;

  bool operator==(const TrainingRole&) const = default;
};

struct TrainingPlan {
  // A role's argv is what runs: of a package `python3 -m MODULE ARGS`, of an
  // image command and args, without what the image itself puts before them.
  // Names, labels and variables are checked where every job's are.
  JobSpec spec;
  // One for each of spec.roles, in their order.
  std::vector<TrainingRole> roles;
  std::vector<std::string> packages;
  std::string python_module;
  // Asked for by name; which interpreter that is, the site says.
  std::string runtime;
  std::string runtime_version;
  // The first task is "chief" in TF_CONFIG, not "master".
  bool use_chief = true;
  // A worker that was lost is started alone, at its address; else the whole
  // gang is.
  bool restart_lost_worker_alone = false;
  std::string job_dir;
  // Of all machines; nothing where a price is not known.
  std::optional<double> ml_units_per_hour;
  // "trainingInput.region: us-central1 is taken by the default pool".
  std::vector<std::string> notes;
};

// As AI Platform has it: 7 days.
inline constexpr Duration kDefaultMaxRunningTime = std::chrono::hours(7 * 24);

StatusOr<TrainingPlan> Translate(const TrainingJob& job,
                                 const MachineTable& table);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_TRAINING_TRANSLATE_H_
