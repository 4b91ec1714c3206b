#include "worker/trainer/training_job.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/checkpoint/writer.h"

namespace lockstep::worker::trainer {

StatusOr<PreparedTraining> PrepareTraining(FileSystem* fs,
                                           runtime::Session* session,
                                           const TrainerOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(JobData data,
                            OpenJobData(fs, options, session->world_size()));
  PreparedTraining job{.data = std::move(data)};
  TrainingLength& plan = job.plan;
  Schedule& schedule = job.schedule;
  plan.epochs = options.epochs;
  plan.steps_per_epoch = static_cast<int64_t>(job.data.plan.steps_per_epoch());
  plan.global_batch =
      options.batch_size * options.accumulate * session->world_size();
  plan.total_steps = plan.epochs * plan.steps_per_epoch;
  if (options.max_steps > 0) {
    plan.total_steps = std::min(plan.total_steps, options.max_steps);
  }
  job.output = options.output.directory.empty()
                   ? session->identity().output_directory
                   : options.output.directory;
  job.checkpoint_root = options.output.checkpoint_dir;
  if (job.checkpoint_root.empty() && !job.output.empty()) {
    job.checkpoint_root = JoinPath(job.output, "checkpoints");
  }
  // Now, and not when the model is to be written.
  if (session->chief() && !job.output.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::MakeDirsDurable(fs, job.output));
  }
  schedule.learning_rate = options.rate.learning_rate;
  if (options.rate.scale_lr == "linear") {
    schedule.learning_rate *= static_cast<double>(plan.global_batch) /
                              static_cast<double>(options.rate.reference_batch);
  }
  schedule.warmup_steps = options.rate.warmup_steps;
  if (options.rate.lr_schedule == "cosine") {
    schedule.cosine_steps = plan.total_steps;
  }
  return job;
}

Status FormRanks(runtime::Session* session, const TrainerOptions& options,
                 PreparedTraining* job) {
  job->facts = ConfigOf(options);
  job->facts.merge(ConfigOf(job->data));
  LOCKSTEP_RETURN_IF_ERROR(session->Form(job->facts));
  // Here and not before: only rank 0 need read all labels, and a rank that
  // replaces a lost one, whose peers do not broadcast them again.
  const bool alone = session->identity().recovering;
  std::string classes = std::to_string(options.classes);
  if (options.classes == 0 && (session->chief() || alone)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t counted,
                              CountClasses(*job->data.train));
    classes = std::to_string(counted);
  }
  if (!alone) LOCKSTEP_RETURN_IF_ERROR(session->Broadcast(&classes));
  job->classes = std::stoll(classes);
  job->facts["classes"] = classes;
  return OkStatus();
}

}  // namespace lockstep::worker::trainer
