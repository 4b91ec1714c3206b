// A config file in AI Platform's words, and what it becomes here.
#include "common/training/training_file.h"

#include "common/training/translate.h"
#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(training_file)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  static const auto& site = *new Site(DefaultSite());
  auto job =
      ParseTrainingFile(std::string(fuzz::View(data, size)), "config.yaml");
  if (!job.ok()) {
    fuzz::Require(job.status().code() == StatusCode::kInvalidArgument,
                  "a bad file is INVALID_ARGUMENT");
    fuzz::Require(Message(job.status()).starts_with("config.yaml:"),
                  "an error says where");
    return 0;
  }
  if (job->job_id.empty()) job->job_id = "job";
  const auto plan = Translate(*job, site);
  if (plan.ok()) {
    fuzz::Require(!plan->spec.roles.empty(), "a job has tasks");
    return 0;
  }
  fuzz::Require(plan.status().code() == StatusCode::kInvalidArgument,
                "a job that cannot be is INVALID_ARGUMENT");
  return 0;
}
