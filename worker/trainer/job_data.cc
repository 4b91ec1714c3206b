#include "worker/trainer/job_data.h"

#include <algorithm>
#include <utility>

#include "common/base/crc32c.h"

namespace lockstep::worker::trainer {
namespace {

// "60000 samples in 10 shards, 1a2b3c4d": the number covers names and counts.
std::string Describe(const data::Dataset& dataset) {
  const std::vector<uint64_t> counts = dataset.counts();
  std::string list;
  for (size_t i = 0; i < dataset.shards(); ++i) {
    const std::string& path = dataset.path(i);
    list += fmt::format("{} {}\n", path.substr(path.rfind('/') + 1), counts[i]);
  }
  return fmt::format("{} samples in {} shards, {:08x}", dataset.samples(),
                     dataset.shards(), Crc32c(list));
}

}  // namespace

StatusOr<JobData> OpenJobData(FileSystem* fs, const TrainerOptions& options,
                              int world_size) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<const data::Dataset> train,
                            data::Dataset::Open(fs, options.data.train));
  LOCKSTEP_ASSIGN_OR_RETURN(const data::ImageShape shape, train->FirstShape());
  std::shared_ptr<const data::Dataset> eval;
  if (!options.data.eval.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(eval, data::Dataset::Open(fs, options.data.eval));
    LOCKSTEP_ASSIGN_OR_RETURN(const data::ImageShape other, eval->FirstShape());
    if (other != shape) {
      return InvalidArgument(
          "images of --train are {}, but those of --eval are {}: pack both "
          "with the same --size",
          FormatShape(shape), FormatShape(other));
    }
  }
  data::ShardPlanOptions plan_options;
  plan_options.seed = options.seed;
  plan_options.global_batch = static_cast<uint64_t>(options.batch_size) *
                              static_cast<uint64_t>(options.accumulate) *
                              static_cast<uint64_t>(world_size);
  LOCKSTEP_ASSIGN_OR_RETURN(
      data::ShardPlan plan,
      data::ShardPlan::Create(train->counts(), plan_options));
  return JobData{std::move(train), std::move(eval), shape, std::move(plan)};
}

std::map<std::string, std::string> ConfigOf(const JobData& data) {
  return {
      {"image", FormatShape(data.shape)},
      {"training data", Describe(*data.train)},
      {"held-out data", data.eval ? Describe(*data.eval) : "none"},
  };
}

StatusOr<int64_t> CountClasses(const data::Dataset& dataset) {
  int64_t classes = 2;
  std::string buffer;
  const std::vector<uint64_t> counts = dataset.counts();
  for (uint32_t shard = 0; shard < counts.size(); ++shard) {
    for (uint64_t record = 0; record < counts[shard]; ++record) {
      LOCKSTEP_ASSIGN_OR_RETURN(const data::LabelledImage image,
                                dataset.Read({shard, record}, &buffer));
      classes = std::max<int64_t>(classes, int64_t{image.label} + 1);
    }
  }
  return classes;
}

}  // namespace lockstep::worker::trainer
