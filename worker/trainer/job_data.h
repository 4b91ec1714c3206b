// The data of a training: opened, and checked to be of one kind.
#ifndef LOCKSTEP_WORKER_TRAINER_JOB_DATA_H_
#define LOCKSTEP_WORKER_TRAINER_JOB_DATA_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/data/dataset.h"
#include "worker/data/shard_plan.h"
#include "worker/trainer/options.h"

namespace lockstep::worker::trainer {

struct JobData {
  std::shared_ptr<const data::Dataset> train;
  std::shared_ptr<const data::Dataset> eval;  // Null without --eval.
  data::ImageShape shape;                     // The same for all images.
  data::ShardPlan plan;                       // For `train`.
};

// Opens the data of the options; `world_size` ranks share each step.
// InvalidArgument where training and held-out images differ in shape.
StatusOr<JobData> OpenJobData(FileSystem* fs, const TrainerOptions& options,
                              int world_size);

// The values that must be equal on all ranks, whatever directories the shards
// are in.
std::map<std::string, std::string> ConfigOf(const JobData& data);

// The largest label + 1, at least 2. Reads every record.
StatusOr<int64_t> CountClasses(const data::Dataset& dataset);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_JOB_DATA_H_
