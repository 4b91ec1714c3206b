#include "client/cli/submit_spec.h"

#include <algorithm>
#include <set>

#include "client/cli/parse.h"
#include "client/cli/text.h"
#include "common/base/file.h"
#include "common/base/utf8.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMaxNameStem = 40;

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string Absolute(const std::string& path, const CliEnvironment& env) {
  return JoinPath(env.working_directory,
                  path.compare(0, 2, "./") == 0 ? path.substr(2) : path);
}

Status FlagError(const char* flag, const Status& status) {
  return Annotate(status, flag);
}

Status SetKind(const SubmitFlags& flags, v1::JobSpec* spec) {
  if (flags.kind) {
    if (*flags.kind == "native") {
      spec->set_kind(v1::JOB_KIND_NATIVE);
    } else if (*flags.kind == "program") {
      spec->set_kind(v1::JOB_KIND_PROGRAM);
    } else {
      return InvalidArgument("--kind: \"{}\" is neither native nor program",
                             *flags.kind);
    }
  } else if (spec->kind() == v1::JOB_KIND_UNSPECIFIED) {
    const bool trainer =
        spec->argv_size() > 0 && BaseName(spec->argv(0)) == "lockstep-train";
    spec->set_kind(trainer ? v1::JOB_KIND_NATIVE : v1::JOB_KIND_PROGRAM);
  }
  return OkStatus();
}

// `chiefs` is 1, or 0 for a job of workers only.
Status SetTasks(const char* flag, int32_t tasks, int32_t chiefs,
                v1::JobSpec* spec) {
  if (tasks < 1)
    return InvalidArgument("{}: must be 1 or more, not {}", flag, tasks);
  // The file's role stays except for its count.
  v1::RoleSpec chief;
  v1::RoleSpec worker;
  std::vector<v1::RoleSpec> others;
  for (const v1::RoleSpec& role : spec->roles()) {
    if (role.type() == v1::TASK_TYPE_CHIEF) {
      chief = role;
    } else if (role.type() == v1::TASK_TYPE_WORKER) {
      worker = role;
    } else {
      others.push_back(role);
    }
  }
  if (worker.type() == v1::TASK_TYPE_UNSPECIFIED) worker = chief;
  chief.set_type(v1::TASK_TYPE_CHIEF);
  chief.set_count(1);
  worker.set_type(v1::TASK_TYPE_WORKER);
  worker.set_count(tasks - chiefs);
  spec->clear_roles();
  if (chiefs > 0) *spec->add_roles() = chief;
  if (worker.count() > 0) *spec->add_roles() = worker;
  for (const v1::RoleSpec& role : others) *spec->add_roles() = role;
  return OkStatus();
}

Status SetResources(const SubmitFlags& flags, bool from_file,
                    v1::JobSpec* spec) {
  for (v1::RoleSpec& role : *spec->mutable_roles()) {
    if (flags.ranks_per_task) role.set_ranks_per_task(*flags.ranks_per_task);
    v1::Resources* const resources = role.mutable_resources();
    if (flags.memory) {
      const auto bytes = ParseBytes(*flags.memory);
      if (!bytes.ok()) return FlagError("--memory", bytes.status());
      resources->set_memory_bytes(*bytes);
    }
    if (flags.gpus) resources->set_gpus(*flags.gpus);
    if (flags.gpu_type) resources->set_gpu_type(*flags.gpu_type);
    if (flags.cpus) {
      resources->set_cpus(*flags.cpus);
    } else if (!from_file) {
      resources->set_cpus(std::max(1, role.ranks_per_task()));
    }
  }
  return OkStatus();
}

Status SetEnvironment(const SubmitFlags& flags, const CliEnvironment& env,
                      v1::JobSpec* spec) {
  if (flags.slurm_env) spec->set_slurm_environment(true);
  for (const std::string& text : flags.env) {
    if (text.find('=') == std::string::npos) {
      if (!env.variables.count(text)) {
        return InvalidArgument(
            "--env {}: the variable is not set here; give {}=VALUE", text,
            text);
      }
      if (!IsUtf8(env.Variable(text))) {
        return InvalidArgument("--env {}: its value here is not UTF-8", text);
      }
      (*spec->mutable_environment())[text] = env.Variable(text);
      continue;
    }
    const auto pair = ParsePair(text);
    if (!pair.ok()) return FlagError("--env", pair.status());
    (*spec->mutable_environment())[pair->first] = pair->second;
  }
  std::set<std::string> labels;
  for (const std::string& text : flags.labels) {
    const auto pair = ParsePair(text);
    if (!pair.ok()) return FlagError("--label", pair.status());
    if (!labels.insert(pair->first).second) {
      return InvalidArgument("--label {}: {} is given twice", text,
                             pair->first);
    }
    (*spec->mutable_labels())[pair->first] = pair->second;
  }
  return OkStatus();
}

Status SetDuration(const char* flag, const std::optional<std::string>& text,
                   google::protobuf::Duration* field) {
  const auto duration = ParseDuration(*text);
  if (!duration.ok()) return FlagError(flag, duration.status());
  field->set_seconds(duration->count() / 1'000'000'000);
  field->set_nanos(static_cast<int32_t>(duration->count() % 1'000'000'000));
  return OkStatus();
}

Status SetNodeLoss(const std::string& when, v1::JobSpec* spec) {
  if (when == "auto") {
    spec->set_node_loss(v1::NODE_LOSS_AUTO);
    return OkStatus();
  }
  if (when == "never") {
    spec->set_node_loss(v1::NODE_LOSS_NEVER);
    return OkStatus();
  }
  if (!ParseDuration(when).ok()) {
    return InvalidArgument(
        "--node-lost-timeout: \"{}\" is neither auto nor never nor a time "
        "like 90s or 10m",
        when);
  }
  return SetDuration("--node-lost-timeout", when,
                     spec->mutable_node_lost_timeout());
}

Status SetHang(const SubmitFlags& flags, v1::JobSpec* spec) {
  if (flags.hang) {
    if (*flags.hang == "warn") {
      spec->set_hang(v1::HANG_POLICY_WARN);
    } else if (*flags.hang == "restart") {
      spec->set_hang(v1::HANG_POLICY_RESTART);
    } else if (*flags.hang == "off") {
      spec->set_hang(v1::HANG_POLICY_OFF);
    } else {
      return InvalidArgument("--hang: \"{}\" is none of warn, restart and off",
                             *flags.hang);
    }
  }
  if (flags.progress_pattern) {
    spec->set_progress_pattern(*flags.progress_pattern);
  }
  if (flags.node_lost_timeout) {
    LOCKSTEP_RETURN_IF_ERROR(SetNodeLoss(*flags.node_lost_timeout, spec));
  }
  if (flags.warm_starts) spec->set_warm_starts(true);
  if (flags.spares) spec->set_spares(*flags.spares);
  if (flags.hold) {
    LOCKSTEP_RETURN_IF_ERROR(
        SetDuration("--hold", flags.hold, spec->mutable_hold()));
  }
  if (flags.elastic) spec->set_elastic_min_tasks(*flags.elastic);
  if (flags.rescale) spec->set_rescale(true);
  if (flags.idle_notice) {
    LOCKSTEP_RETURN_IF_ERROR(SetDuration("--idle-notice", flags.idle_notice,
                                         spec->mutable_idle_notice()));
  }
  if (flags.idle_stop) {
    LOCKSTEP_RETURN_IF_ERROR(
        SetDuration("--idle-stop", flags.idle_stop, spec->mutable_idle_stop()));
  }
  if (!flags.stall_after) return OkStatus();
  return SetDuration("--stall-after", flags.stall_after,
                     spec->mutable_stall_after());
}

Status SetLimits(const SubmitFlags& flags, v1::JobSpec* spec) {
  if (flags.checkpoint_interval_steps) {
    spec->mutable_checkpoint()->set_interval_steps(
        *flags.checkpoint_interval_steps);
  }
  if (flags.checkpoint_keep) {
    spec->mutable_checkpoint()->set_keep(*flags.checkpoint_keep);
  }
  if (flags.restart_budget) spec->set_restart_budget(*flags.restart_budget);
  if (flags.priority) spec->set_priority(*flags.priority);
  if (flags.pool) spec->set_pool(*flags.pool);
  if (flags.max_running_time) {
    LOCKSTEP_RETURN_IF_ERROR(SetDuration("--max-running-time",
                                         flags.max_running_time,
                                         spec->mutable_max_running_time()));
  }
  if (flags.end_with) {
    if (*flags.end_with != "all" && *flags.end_with != "chief") {
      return InvalidArgument("--end-with: \"{}\" is neither all nor chief",
                             *flags.end_with);
    }
    spec->set_end_with(*flags.end_with == "all" ? v1::END_WITH_ALL
                                                : v1::END_WITH_CHIEF);
  }
  if (flags.end_grace) {
    LOCKSTEP_RETURN_IF_ERROR(
        SetDuration("--end-grace", flags.end_grace, spec->mutable_end_grace()));
  }
  if (flags.max_wait_time) {
    LOCKSTEP_RETURN_IF_ERROR(SetDuration("--max-wait-time", flags.max_wait_time,
                                         spec->mutable_max_wait_time()));
  }
  return OkStatus();
}

Status SetPaths(const SubmitFlags& flags, const CliEnvironment& env,
                v1::JobSpec* spec) {
  if (flags.output) {
    spec->set_output_directory(
        flags.output->empty() ? "" : Absolute(*flags.output, env));
  } else if (spec->output_directory().empty() &&
             spec->kind() == v1::JOB_KIND_NATIVE &&
             !env.Variable("HOME").empty()) {
    spec->set_output_directory(env.Variable("HOME") + "/lockstep/" +
                               spec->name());
  }
  if (!flags.working_directory) return OkStatus();
  if (*flags.working_directory != kOutputWorkdir) {
    spec->set_working_directory(Absolute(*flags.working_directory, env));
    return OkStatus();
  }
  if (spec->output_directory().empty()) {
    return InvalidArgument(
        "--workdir output: the job has no output directory: give --output DIR, "
        "or ./output for a folder of that name");
  }
  spec->set_working_directory(spec->output_directory());
  return OkStatus();
}

}  // namespace

std::string JobNameFrom(const std::string& program, const std::string& random) {
  std::string stem = BaseName(program);
  stem = stem.substr(0, stem.find('.'));
  for (char& c : stem) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!good) c = '-';
  }
  const bool letter = !stem.empty() && ((stem[0] >= 'a' && stem[0] <= 'z') ||
                                        (stem[0] >= 'A' && stem[0] <= 'Z'));
  if (!letter) stem = "job" + (stem.empty() ? "" : "-" + stem);
  return stem.substr(0, kMaxNameStem) + "-" + random;
}

StatusOr<v1::JobSpec> BuildSpec(const SubmitFlags& flags,
                                const v1::JobSpec& file,
                                const CliEnvironment& env,
                                const std::string& random) {
  v1::JobSpec spec = file;
  if (!flags.program.empty()) {
    spec.clear_argv();
    for (const std::string& arg : flags.program) spec.add_argv(arg);
    if (spec.argv(0).find('/') != std::string::npos) {
      spec.set_argv(0, Absolute(spec.argv(0), env));
    }
  }
  const bool roles_have_programs =
      spec.roles_size() > 0 &&
      std::all_of(spec.roles().begin(), spec.roles().end(),
                  [](const v1::RoleSpec& r) { return r.argv_size() > 0; });
  if (spec.argv_size() == 0 && !roles_have_programs) {
    return InvalidArgument(
        "there is no program to run: lockstep submit [OPTIONS] -- PROGRAM "
        "ARGS...");
  }
  LOCKSTEP_RETURN_IF_ERROR(SetKind(flags, &spec));
  const bool file_roles = file.roles_size() > 0;
  if (flags.tasks && flags.workers) {
    return InvalidArgument(
        "--tasks and --workers exclude each other: give --tasks for a chief "
        "and workers, --workers for workers only");
  }
  if (flags.workers) {
    LOCKSTEP_RETURN_IF_ERROR(SetTasks("--workers", *flags.workers, 0, &spec));
  } else if (flags.tasks || !file_roles) {
    LOCKSTEP_RETURN_IF_ERROR(
        SetTasks("--tasks", flags.tasks.value_or(1), 1, &spec));
  }
  LOCKSTEP_RETURN_IF_ERROR(SetResources(flags, file_roles, &spec));
  LOCKSTEP_RETURN_IF_ERROR(SetEnvironment(flags, env, &spec));
  LOCKSTEP_RETURN_IF_ERROR(SetLimits(flags, &spec));
  LOCKSTEP_RETURN_IF_ERROR(SetHang(flags, &spec));
  if (flags.name && flags.name->empty()) {
    return InvalidArgument(
        "--name: is empty; the default is the program's name and six "
        "hexadecimal digits");
  }
  if (flags.name) spec.set_name(*flags.name);
  if (spec.name().empty()) {
    spec.set_name(JobNameFrom(
        spec.argv_size() > 0 ? spec.argv(0) : spec.roles(0).argv(0), random));
  }
  if (flags.comment) spec.set_comment(*flags.comment);
  if (flags.reduction_plan) {
    if (!IsUtf8(*flags.reduction_plan)) {
      return InvalidArgument("--reduction-plan: the file is not text");
    }
    spec.set_reduction_plan(*flags.reduction_plan);
  }
  LOCKSTEP_RETURN_IF_ERROR(SetPaths(flags, env, &spec));
  return spec;
}

std::string RelativeDataNote(const v1::JobSpec& spec,
                             const CliEnvironment& env) {
  if (!spec.working_directory().empty() || spec.argv_size() == 0 ||
      BaseName(spec.argv(0)) != "lockstep-train") {
    return "";
  }
  std::string note;
  for (int i = 1; i < spec.argv_size(); ++i) {
    for (const std::string flag : {"--train", "--eval"}) {
      std::string path;
      if (spec.argv(i) == flag && i + 1 < spec.argv_size()) {
        path = spec.argv(i + 1);
      } else if (spec.argv(i).rfind(flag + "=", 0) == 0) {
        path = spec.argv(i).substr(flag.size() + 1);
      }
      if (path.empty() || path[0] == '/') continue;
      note += "note: ranks start in their own folders, where " + flag + " " +
              Printable(path) + " is not found; give " +
              Printable(Absolute(path, env)) + " or --working-directory DIR\n";
    }
  }
  return note;
}

std::string ContainerPathsNote(const v1::JobSpec& spec) {
  const bool in_image = std::any_of(spec.roles().begin(), spec.roles().end(),
                                    [](const v1::RoleSpec& role) {
                                      return !role.container().image().empty();
                                    });
  if (!in_image || !spec.working_directory().empty()) return "";
  return "note: ranks start in the image's working directory, and what they "
         "write to relative paths is lost with the container; give --workdir "
         "DIR of the nodes, or --workdir output\n";
}

}  // namespace lockstep::cli
