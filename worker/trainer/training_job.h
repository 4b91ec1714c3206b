// A training before its first step: its data, its length, and the directories
// of its results.
#ifndef LOCKSTEP_WORKER_TRAINER_TRAINING_JOB_H_
#define LOCKSTEP_WORKER_TRAINER_TRAINING_JOB_H_

#include <cstdint>
#include <map>
#include <string>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/runtime/session.h"
#include "worker/trainer/job_data.h"
#include "worker/trainer/options.h"
#include "worker/trainer/schedule.h"
#include "worker/trainer/training_logger.h"

namespace lockstep::worker::trainer {

struct PreparedTraining {
  JobData data;
  TrainingLength plan = {};
  Schedule schedule = {};
  std::string output = {};  // Empty: nothing is written.
  std::string checkpoint_root = {};
  int64_t classes = 0;  // Known after FormRanks.
  // Config and data, by name: what must be equal on all ranks and between the
  // runs of a job.
  std::map<std::string, std::string> facts = {};
};

// Opens the data. Makes the output directory on rank 0, so that a place that
// cannot be written is found now and not at the end.
StatusOr<PreparedTraining> PrepareTraining(FileSystem* fs,
                                           runtime::Session* session,
                                           const TrainerOptions& options);

// Forms the session with the job's facts, and finds out the classes.
Status FormRanks(runtime::Session* session, const TrainerOptions& options,
                 PreparedTraining* job);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_TRAINING_JOB_H_
