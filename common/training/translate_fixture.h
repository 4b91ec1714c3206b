// What the tests of translate.h share.
#ifndef LOCKSTEP_COMMON_TRAINING_TRANSLATE_FIXTURE_H_
#define LOCKSTEP_COMMON_TRAINING_TRANSLATE_FIXTURE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "common/training/translate.h"

namespace lockstep::translate_tests {

inline constexpr int64_t kGiB = int64_t{1} << 30;

// A container on machines of its own: chief, 2 workers, ps, evaluator.
inline TrainingJob Container() {
  TrainingJob job;
  job.job_id = "a";
  TrainingInput& in = job.training_input;
  in.scale_tier = "CUSTOM";
  in.master = {"n1-standard-8", {}, {}};
  in.master.config.image_uri = "gcr.io/p/trainer:1";
  in.master.config.accelerator_config =
      AcceleratorConfig{2, "NVIDIA_TESLA_V100"};
  in.worker = {"n1-standard-4", 2, {}};
  in.worker.config.accelerator_config = AcceleratorConfig{1, "NVIDIA_TESLA_T4"};
  in.parameter_server = {"n1-highmem-2", 1, {}};
  in.evaluator = {"n1-standard-4", 1, {}};
  in.args = {"trainer/task.py", "--epochs", "5"};
  return job;
}

inline TrainingJob Package() {
  TrainingJob job;
  job.job_id = "a";
  TrainingInput& in = job.training_input;
  in.scale_tier = "BASIC";
  in.package_uris = {"sha256:1"};
  in.python_module = "trainer.task";
  in.runtime_version = "2.11";
  in.args = {"--epochs", "5"};
  return job;
}

inline StatusOr<TrainingPlan> Do(const TrainingJob& job) {
  Site site = DefaultSite();
  site.runtimes = {{"any", {"python3", false, {"*"}}}};
  return Translate(job, site);
}

using Change = std::function<void(TrainingJob*)>;
struct Case {
  Change change;
  std::string want;
};

}  // namespace lockstep::translate_tests

#endif  // LOCKSTEP_COMMON_TRAINING_TRANSLATE_FIXTURE_H_
