#include "server/service/submission.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "common/model/reduction_plan.h"
#include "common/model/removed_backend.h"
#include "common/training/translate.h"
#include "common/wire/job_wire.h"
#include "common/wire/training_wire.h"

namespace lockstep::server {
namespace {

// TF_CONFIG contains it as a string, so every quote is doubled, next to the
// addresses of all tasks.
constexpr size_t kMaxTfConfigJob = kMaxArgument / 2;

// Maps spec fields to fields of a training job.
constexpr std::pair<std::string_view, std::string_view> kTheirWords[] = {
    {"spec.name", "jobId"},
    {"spec.labels", "labels"},
    {"spec.environment", "lockstep.env"},
    {"spec.inherited_environment", "lockstep.inheritedEnvironment"},
    {"spec.restart_budget", "lockstep.restart.budget"},
    {"spec.runtime", "lockstep.runtime"},
    {"spec.packages", "packages"},
    {"spec.output_directory", "trainingInput.jobDir"},
    {"spec.job_dir", "trainingInput.jobDir"},
    {"spec.priority", "trainingInput.scheduling.priority"},
    {"spec.max_running_time", "trainingInput.scheduling.maxRunningTime"},
    {"spec.max_wait_time", "trainingInput.scheduling.maxWaitTime"},
};

std::string_view ConfigOf(TaskType type) {
  switch (type) {
    case TaskType::kChief:
      return kMasterNames.config;
    case TaskType::kWorker:
      return kWorkerNames.config;
    case TaskType::kPs:
      return kParameterServerNames.config;
    case TaskType::kEvaluator:
      return kEvaluatorNames.config;
  }
  return "trainingInput";
}

// Rewrites an error of a spec for a user who wrote no spec.
Status InTheirWords(const Status& status, const JobSpec& spec) {
  std::string text = Message(status);
  for (const auto& [ours, theirs] : kTheirWords) {
    if (!text.starts_with(ours)) continue;
    text = std::string(theirs) + text.substr(ours.size());
    break;
  }
  for (size_t i = 0; i < spec.roles.size(); ++i) {
    const std::string role = fmt::format("spec.roles[{}]", i);
    const std::string image = role + ".container.image";
    const std::string config(ConfigOf(spec.roles[i].type));
    if (text.starts_with(image)) {
      text = config + ".imageUri" + text.substr(image.size());
    } else if (text.starts_with(role)) {
      text = config + text.substr(role.size());
    }
  }
  const std::string reason = ReasonOf(status);
  const Status out(status.code(), text);
  return reason.empty() ? out : WithReason(out, reason);
}

StatusOr<Submitted> ReadTraining(const v1::SubmitJobRequest& request,
                                 const Site& site) {
  Submitted out;
  LOCKSTEP_RETURN_IF_ERROR(CheckKnown(request.training()));
  LOCKSTEP_ASSIGN_OR_RETURN(out.job.training, FromProto(request.training()));
  LOCKSTEP_ASSIGN_OR_RETURN(TrainingPlan plan,
                            Translate(*out.job.training, site));
  const bool container = plan.spec.roles[0].container.has_value();
  if (container && request.packages_size() > 0) {
    return InvalidArgument(
        "packages: are for a Python package, but masterConfig.imageUri names a "
        "container; leave one of them out");
  }
  if (!container && request.packages_size() == 0 && !request.validate_only()) {
    return InvalidArgument(
        "packages: are missing: upload the files of trainingInput.packageUris "
        "and list them here");
  }
  plan.spec.environment_options.tf_config_job =
      TfConfigJob(request.training().training_input());
  if (plan.spec.environment_options.tf_config_job.size() > kMaxTfConfigJob) {
    plan.notes.push_back(fmt::format(
        "trainingInput: is too large ({} bytes) for TF_CONFIG, which has "
        "only the tasks",
        plan.spec.environment_options.tf_config_job.size()));
    plan.spec.environment_options.tf_config_job.clear();
  }
  v1::JobSpec proto = ToProto(plan.spec);
  *proto.mutable_packages() = request.packages();
  // On AI Platform the first replica's end is the job's end.
  proto.set_end_with(v1::END_WITH_CHIEF);
  auto spec = FromProto(proto);
  if (!spec.ok()) return InTheirWords(spec.status(), plan.spec);
  out.job.spec = *std::move(spec);
  out.job.events = std::move(plan.events);
  out.notes = std::move(plan.notes);
  return out;
}

// Only the site decides whether packages may come from an index.
bool AllowsIndex(const Site& site, const std::string& python) {
  return std::any_of(
      site.runtimes.begin(), site.runtimes.end(), [&](const auto& runtime) {
        return runtime.second.python == python && runtime.second.allow_index;
      });
}

// A spec may name its interpreter or use the site's.
Status CompleteRuntime(const Site& site, JobSpec* spec) {
  Runtime& runtime = spec->runtime;
  const bool needed = !spec->packages.empty() || !runtime.name.empty();
  if (!needed || !runtime.python.empty()) {
    runtime.allow_index =
        runtime.allow_index && AllowsIndex(site, runtime.python);
    return OkStatus();
  }
  const auto found = ResolveRuntime(site, runtime.name, "");
  if (found.ok()) {
    runtime = found->runtime;
    return OkStatus();
  }
  return InvalidArgument("spec.runtime.name: {}", Message(found.status()));
}

Status CheckBackend(const JobSpec& spec) {
  if (!AsksForGloo(spec)) return OkStatus();
  return InvalidArgument(
      "spec.argv: backend gloo is no longer available; use tcp, or auto, which "
      "chooses by the ranks' placement");
}

// Checks what a pinned plan allows before placement; the ranks check the rest.
Status CheckReductionPlan(const JobSpec& spec) {
  if (spec.reduction_plan.empty()) return OkStatus();
  const auto plan = ParseReductionPlan(spec.reduction_plan);
  if (!plan.ok()) return Annotate(plan.status(), "spec.reduction_plan");
  int64_t tasks = 0;
  int64_t ranks = 0;
  for (const RoleSpec& role : spec.roles) {
    tasks += role.count;
    ranks += int64_t{role.count} * role.ranks_per_task;
  }
  if (plan->ranks == ranks && plan->hosts <= tasks) return OkStatus();
  return InvalidArgument(
      "spec.reduction_plan: has {} ranks on {} hosts, but the job has {} "
      "ranks in {} tasks",
      plan->ranks, plan->hosts, ranks, tasks);
}

}  // namespace

std::string TfConfigJob(const v1::TrainingInput& input) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  // Cannot fail for a message that was parsed.
  (void)google::protobuf::util::MessageToJsonString(input, &text, options);
  return text;
}

StatusOr<Submitted> ReadSubmission(const v1::SubmitJobRequest& request,
                                   const Site& site) {
  if (request.has_training() && request.has_spec()) {
    return InvalidArgument(
        "training: cannot be combined with spec: give one of them");
  }
  Submitted out;
  if (request.has_training()) {
    LOCKSTEP_ASSIGN_OR_RETURN(out, ReadTraining(request, site));
  } else {
    if (request.packages_size() > 0) {
      return InvalidArgument("packages: are for training; a spec has its own");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(out.job.spec, FromProto(request.spec()));
    LOCKSTEP_RETURN_IF_ERROR(CompleteRuntime(site, &out.job.spec));
    LOCKSTEP_RETURN_IF_ERROR(CheckBackend(out.job.spec));
    LOCKSTEP_RETURN_IF_ERROR(CheckReductionPlan(out.job.spec));
  }
  return out;
}

}  // namespace lockstep::server
